//! Keys: the secret of a session, and the private keys of handshakes.

use std::fmt;

use blake2::{Blake2s256, Digest as _};
use snow::{
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::{CryptoResolver, DefaultResolver, RingResolver},
    types::{Cipher, Dh, Hash, Random},
};

/// The secret of a session. Every process of the session has it, and proves that in each handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) [u8; 32]);

impl Secret {
    /// Makes a secret of random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the channel by which a process gets the secret.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Source of the keys of handshakes: the hash of a random seed and a counter. The seed comes from outside, so that a
/// simulated run can be repeated.
pub struct Entropy {
    seed: [u8; 32],
    taken: u64,
}

impl Entropy {
    /// Makes a source from a random seed, which must not be used for anything else.
    #[must_use]
    pub const fn new(seed: [u8; 32]) -> Self {
        Self { seed, taken: 0 }
    }

    /// Returns a number that an outsider cannot guess.
    pub(crate) fn number(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.next();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    pub(super) fn next(&mut self) -> [u8; 32] {
        self.taken += 1;
        let mut hash = Blake2s256::new();
        hash.update(self.seed);
        hash.update(self.taken.to_le_bytes());
        hash.finalize().into()
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

/// Primitives in Rust, with a key that comes from outside; but the cipher, which all data passes, uses the processor's
/// instructions for AES.
pub(super) struct Primitives(pub(super) [u8; 32]);

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(OneKey(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// A source of randomness that gives one key, and fails when asked for more.
struct OneKey(Option<[u8; 32]>);

impl Random for OneKey {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        let key = self.0.take().ok_or(snow::Error::Rng)?;
        if out.len() != key.len() {
            return Err(snow::Error::Rng);
        }
        out.copy_from_slice(&key);
        Ok(())
    }
}
