//! The keys of the page: a token in its link, which works once, and a session in a cookie.
//!
//! | the link was | a visitor comes with | result |
//! |---|---|---|
//! | not used | its token | a session, and the link is used |
//! | used | its token | refused: used |
//! | either | another token | refused: wrong |
//! | either | the cookie of the session | let in |

use std::fmt;

use subtle::ConstantTimeEq as _;

/// A secret of 128 random bits, as hexadecimal digits. It is compared in constant time and never printed by `Debug`.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn random() -> Result<Self, os::Error> {
        let (high, low) = (os::random_number()?, os::random_number()?);
        Ok(Self(format!("{high:016x}{low:016x}")))
    }

    pub(super) fn digits(&self) -> &str {
        &self.0
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Whether the link of the page was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Fresh,
    Used,
}

/// What a token in a link opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Opens,
    Used,
    Wrong,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Access {
    token: Secret,
    session: Secret,
    link: Link,
    port: u16,
}

impl Access {
    pub(super) const fn new(token: Secret, session: Secret, port: u16) -> Self {
        Self {
            token,
            session,
            link: Link::Fresh,
            port,
        }
    }

    /// Returns the link for the user, which works once.
    pub(super) fn link(&self) -> String {
        format!(
            "http://127.0.0.1:{}/open/{}",
            self.port,
            self.token.digits()
        )
    }

    /// Tries a token, and uses it up.
    pub(super) fn try_token(&mut self, given: &str) -> Token {
        match (self.token.is(given.as_bytes()), self.link) {
            (true, Link::Fresh) => {
                self.link = Link::Used;
                Token::Opens
            }
            (true, Link::Used) => Token::Used,
            (false, _) => Token::Wrong,
        }
    }

    /// Returns true if a `Cookie` header has the session.
    pub(super) fn has_session(&self, cookies: &str) -> bool {
        let name = self.cookie_name();
        let mut pairs = cookies.split(';').filter_map(|pair| pair.split_once('='));
        pairs.any(|(key, value)| key.trim() == name && self.session.is(value.trim().as_bytes()))
    }

    /// Returns the `Set-Cookie` header of a new session.
    pub(super) fn cookie(&self) -> String {
        let (name, value) = (self.cookie_name(), self.session.digits());
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict")
    }

    /// Browsers send cookies to all ports of a host, so that the name has to tell two pages apart.
    fn cookie_name(&self) -> String {
        format!("rally-page-{}", self.port)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the access to a page on port 7000, with known keys.
    pub(in crate::page) fn access() -> Access {
        Access::new(Secret("a".repeat(32)), Secret("b".repeat(32)), 7000)
    }

    #[test]
    fn a_token_works_once() {
        let mut access = access();
        assert_eq!(access.try_token(&"b".repeat(32)), Token::Wrong);
        assert_eq!(access.try_token(""), Token::Wrong);
        assert_eq!(access.try_token(&"a".repeat(31)), Token::Wrong);
        assert_eq!(access.try_token(&"a".repeat(32)), Token::Opens);
        assert_eq!(access.try_token(&"a".repeat(32)), Token::Used);
        assert_eq!(access.try_token(&"a".repeat(33)), Token::Wrong);
    }

    #[test]
    fn only_the_cookie_of_this_page_is_its_session() {
        let access = access();
        let value = "b".repeat(32);
        for (cookies, expected) in [
            (format!("rally-page-7000={value}"), true),
            (format!("x=1; rally-page-7000={value}; y=2"), true),
            (
                format!("rally-page-7000=wrong; rally-page-7000={value}"),
                true,
            ),
            (format!("rally-page-7001={value}"), false),
            (format!("rally-page-7000={value}0"), false),
            (format!("rally-page-7000={}", "a".repeat(32)), false),
            ("rally-page-7000=".to_owned(), false),
            (value, false),
            (String::new(), false),
        ] {
            assert_eq!(access.has_session(&cookies), expected, "{cookies}");
        }
    }

    #[test]
    fn secrets_differ_and_are_not_printed() {
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one.digits(), other.digits());
        assert_eq!(one.digits().len(), 32);
        assert_eq!(format!("{one:?}"), "Secret");
    }
}
