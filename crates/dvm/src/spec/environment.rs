//! The environment of processes.
//!
//! A job has some dozens of variables, and they are copied several times between its submission and its start. So they are in one
//! piece of memory, which copies share until one of them is changed, in the form that exec(2) takes. In messages and in the store they
//! are a list of pairs of `OsString`.

use std::{
    borrow::Cow,
    ffi::{CStr, OsStr},
    fmt,
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};

/// Number of variables and bytes for each of them for which there is room before the first is decoded.
const COUNT_USUAL: usize = 128;
const LENGTH_USUAL: usize = 40;

/// Variables, in an order. A name may occur twice, as in the memory of a process.
#[derive(Clone, Default)]
pub struct Environment(Arc<Block>);

#[derive(Clone, Default)]
struct Block {
    /// `NAME=value` and a zero byte for each variable, and what is left of those that were removed.
    bytes: Vec<u8>,
    variables: Vec<Place>,
}

/// Where a variable is.
#[derive(Clone, Copy)]
struct Place {
    start: u32,
    /// Behind its name.
    middle: u32,
    /// Behind its value.
    end: u32,
}

impl Block {
    /// Adds a variable. Name and value are cut at a zero byte: no program could see what follows it. One behind 4 GiB of others
    /// is left out: no message and no memory for arguments is so long.
    fn push(&mut self, name: &[u8], value: &[u8]) {
        let length = self.bytes.len();
        self.bytes.extend_from_slice(cut(name));
        let middle = self.bytes.len();
        self.bytes.push(b'=');
        self.bytes.extend_from_slice(cut(value));
        let end = self.bytes.len();
        self.bytes.push(0);
        let places = [length, middle, end].map(u32::try_from);
        match places {
            [Ok(start), Ok(middle), Ok(end)] => self.variables.push(Place { start, middle, end }),
            _ => self.bytes.truncate(length),
        }
    }

    /// Gives back the bytes of removed variables once they are more than the others, so that changes of one variable do not add up.
    fn compact(&mut self) {
        let used = |place: &Place| (place.end + 1 - place.start) as usize;
        let live: usize = self.variables.iter().map(used).sum();
        if self.bytes.len() <= 2 * live {
            return;
        }
        let old = std::mem::replace(&mut self.bytes, Vec::with_capacity(live));
        for place in &mut self.variables {
            // It is no more than the old length, which fits.
            let behind = place.start - u32::try_from(self.bytes.len()).unwrap_or(place.start);
            self.bytes
                .extend_from_slice(&old[place.start as usize..=place.end as usize]);
            place.start -= behind;
            place.middle -= behind;
            place.end -= behind;
        }
    }

    fn name(&self, place: Place) -> &OsStr {
        OsStr::from_bytes(&self.bytes[place.start as usize..place.middle as usize])
    }

    fn value(&self, place: Place) -> &OsStr {
        OsStr::from_bytes(&self.bytes[place.middle as usize + 1..place.end as usize])
    }
}

fn cut(text: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, text);
    end.map_or(text, |end| &text[..end])
}

impl Environment {
    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let block = &*self.0;
        let places = block.variables.iter();
        places.map(|place| (block.name(*place), block.value(*place)))
    }

    /// Returns the variables as a new process gets them: `NAME=value`.
    pub fn entries(&self) -> impl Iterator<Item = &CStr> {
        let block = &*self.0;
        let places = block.variables.iter();
        let bytes = places.map(|place| &block.bytes[place.start as usize..=place.end as usize]);
        bytes.map(|bytes| CStr::from_bytes_with_nul(bytes).unwrap_or_default())
    }

    /// Shares the memory of another one from now on if both are equal. Otherwise it takes no more memory than it needs, because
    /// it is to stay.
    pub(crate) fn share(&mut self, other: &Self) {
        if self == other {
            self.clone_from(other);
        } else {
            let block = Arc::make_mut(&mut self.0);
            block.bytes.shrink_to_fit();
            block.variables.shrink_to_fit();
        }
    }

    /// Returns true if both are in the same memory.
    #[cfg(test)]
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        let name = name.as_ref();
        let mut all = self.iter();
        all.find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Sets a variable. It is then the last one.
    pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        self.remove(name);
        let block = Arc::make_mut(&mut self.0);
        block.push(name.as_bytes(), value.as_bytes());
    }

    pub fn remove(&mut self, name: impl AsRef<OsStr>) {
        let name = name.as_ref();
        self.retain(|known| known != name);
    }

    /// Removes the variables for whose names this returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&OsStr) -> bool) {
        // Mostly all stay, and other copies go on sharing the memory.
        if self.iter().all(|(name, _)| keep(name)) {
            return;
        }
        let block = Arc::make_mut(&mut self.0);
        let mut variables = std::mem::take(&mut block.variables);
        variables.retain(|place| keep(block.name(*place)));
        block.variables = variables;
        block.compact();
    }
}

impl<N: AsRef<OsStr>, V: AsRef<OsStr>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let mut block = Block::default();
        for (name, value) in variables {
            block.push(name.as_ref().as_bytes(), value.as_ref().as_bytes());
        }
        Self(Arc::new(block))
    }
}

/// Two are equal if they have the same variables in the same order.
impl PartialEq for Environment {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.iter().eq(other.iter())
    }
}

impl Eq for Environment {}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Has the form of an `OsString`, whose bytes `serde` would pass one by one.
#[derive(Serialize, Deserialize)]
#[serde(rename = "OsString")]
enum Text<'a> {
    Unix(#[serde(borrow)] Raw<'a>),
}

impl<'a> Text<'a> {
    fn of(text: &'a OsStr) -> Self {
        Self::Unix(Raw(Cow::Borrowed(text.as_bytes())))
    }
}

struct Raw<'a>(Cow<'a, [u8]>);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Raw<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Raw(Cow::Borrowed(bytes)))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(Raw(Cow::Owned(bytes.to_vec())))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

impl Serialize for Environment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.iter();
        serializer.collect_seq(pairs.map(|(name, value)| (Text::of(name), Text::of(value))))
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Environment;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of variables")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
                // Room for as many as are announced, if that are not absurdly many.
                let count = pairs.size_hint().unwrap_or_default().min(COUNT_USUAL);
                let mut block = Block {
                    bytes: Vec::with_capacity(count * LENGTH_USUAL),
                    variables: Vec::with_capacity(count),
                };
                while let Some((Text::Unix(name), Text::Unix(value))) = pairs.next_element()? {
                    block.push(&name.0, &value.0);
                }
                Ok(Environment(Arc::new(block)))
            }
        }
        deserializer.deserialize_seq(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    const PAIRS: [(&str, &str); 3] = [("A", "1"), ("PATH", "/bin:/usr/bin"), ("E", "")];

    fn entries(environment: &Environment) -> Vec<&str> {
        let entries = environment.entries();
        entries.map(|entry| entry.to_str().unwrap()).collect()
    }

    #[test]
    fn copies_share_until_one_is_changed() {
        let first: Environment = PAIRS.into_iter().collect();
        assert_eq!(entries(&first), ["A=1", "PATH=/bin:/usr/bin", "E="]);
        let mut second = first.clone();
        second.remove("B");
        second.retain(|name| name != "C");
        assert!(Arc::ptr_eq(&first.0, &second.0));
        second.set("A", "2=3");
        second.remove("E");
        assert_eq!(entries(&second), ["PATH=/bin:/usr/bin", "A=2=3"]);
        assert_eq!(second.get("A"), Some(OsStr::new("2=3")));
        assert_eq!(second.get("E"), None);
        assert_eq!(first.get("E"), Some(OsStr::new("")));
        assert_ne!(first, second);
        second.remove("A");
        assert_eq!(second, [PAIRS[1]].into_iter().collect());
        assert_eq!(entries(&first), ["A=1", "PATH=/bin:/usr/bin", "E="]);
    }

    /// A request may change the same variable many times.
    #[test]
    fn changes_do_not_add_up() {
        let mut environment: Environment = PAIRS.into_iter().collect();
        let mut path = String::new();
        for _ in 0..1000 {
            path.push_str(":/x");
            environment.set("PATH", &path);
        }
        assert_eq!(
            entries(&environment),
            ["A=1", "E=", &format!("PATH={path}")]
        );
        assert!(environment.0.bytes.len() < 3 * path.len());
    }

    #[test]
    fn what_follows_a_zero_byte_is_lost() {
        let odd: Environment = [("A\0B", "1\0\0"), ("", "\0"), ("C", "2")]
            .into_iter()
            .collect();
        assert_eq!(entries(&odd), ["A=1", "=", "C=2"]);
    }

    /// Stores and recordings of earlier versions have it as a list.
    #[test]
    fn it_is_encoded_as_a_list_of_pairs() {
        let long = "x".repeat(300);
        let pairs = [PAIRS.as_slice(), &[("LONG", &long)]].concat();
        let list: Vec<(OsString, OsString)> = pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let environment: Environment = pairs.into_iter().collect();
        let bytes = postcard::to_stdvec(&environment).unwrap();
        assert_eq!(bytes, postcard::to_stdvec(&list).unwrap());
        assert_eq!(
            postcard::from_bytes::<Environment>(&bytes).unwrap(),
            environment
        );
        for end in 0..bytes.len() {
            assert!(postcard::from_bytes::<Environment>(&bytes[..end]).is_err());
        }
    }
}
