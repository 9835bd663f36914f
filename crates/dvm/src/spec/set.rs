//! The name of a process set: what PMIx and MPI programs can ask for, and lists separated by commas can contain.

use serde::{Deserialize, Serialize};

/// Name of the process set to which the procs of an app belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(String);

/// Bytes of the name of a process set. A longer name is refused.
pub const SET_NAME_MAX: usize = 255;

/// Error in the name of a process set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetNameError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {SET_NAME_MAX} bytes")]
    TooLong,
    #[error("it contains a comma, which separates names in lists")]
    Comma,
    #[error("it contains a control character")]
    Control,
}

impl SetName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SetName {
    type Error = SetNameError;

    fn try_from(name: String) -> Result<Self, SetNameError> {
        match name.as_str() {
            "" => Err(SetNameError::Empty),
            name if name.len() > SET_NAME_MAX => Err(SetNameError::TooLong),
            name if name.contains(',') => Err(SetNameError::Comma),
            name if name.contains(char::is_control) => Err(SetNameError::Control),
            _ => Ok(Self(name)),
        }
    }
}

impl From<SetName> for String {
    fn from(name: SetName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for (name, expected) in [
            ("ocean".to_owned(), Ok(())),
            ("app://é x".to_owned(), Ok(())),
            ("x".repeat(SET_NAME_MAX), Ok(())),
            (String::new(), Err(SetNameError::Empty)),
            ("x".repeat(SET_NAME_MAX + 1), Err(SetNameError::TooLong)),
            ("a,b".to_owned(), Err(SetNameError::Comma)),
            ("a\0".to_owned(), Err(SetNameError::Control)),
        ] {
            let found = SetName::try_from(name.clone());
            assert_eq!(found.map(|_| ()), expected, "{name}");
            // The bytes of a peer are checked too.
            let bytes = postcard::to_stdvec(&name).unwrap();
            let received = postcard::from_bytes::<SetName>(&bytes);
            assert_eq!(received.is_ok(), expected.is_ok(), "{name}");
        }
    }
}
