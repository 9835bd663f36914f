//! The program that a debugger wants on each node, from the bytes of its symbols.
//!
//! | symbol | bytes |
//! |---|---|
//! | `MPIR_executable_path` | the path of the program, as a C string. Empty: no server is wanted |
//! | `MPIR_server_arguments` | the arguments after the program's name, each as a C string. An empty one ends the list |
//!
//! So an argument may contain any character, and nothing is quoted: `--port 7`, written as one string, is one argument. An empty argument
//! cannot be passed. What fills its array without an end is cut there.

/// A server of a debugger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub path: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
}

impl Server {
    pub(crate) fn read(path: &[u8], arguments: &[u8]) -> Option<Self> {
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        let arguments = arguments.split(|byte| *byte == 0);
        let arguments = arguments.take_while(|argument| !argument.is_empty());
        (!path.is_empty()).then(|| Self {
            path: path.to_vec(),
            arguments: arguments.map(<[u8]>::to_vec).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of both symbols; path and arguments that they mean.
    type Case<'a> = (&'a [u8], &'a [u8], Option<(&'a str, &'a [&'a str])>);

    #[test]
    fn arguments_end_with_an_empty_one() {
        let cases: &[Case<'_>] = &[
            (b"\0\0\0", b"a\0\0\0", None),
            (b"", b"", None),
            (b"/opt/d\0x", b"\0\0", Some(("/opt/d", &[]))),
            (
                b"/opt/d\0",
                b"--port 7\0'b'\0\0c\0",
                Some(("/opt/d", &["--port 7", "'b'"])),
            ),
            (b"/opt/d", b"a\0b", Some(("/opt/d", &["a", "b"]))),
        ];
        for (path, arguments, expected) in cases {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            let found = Server::read(path, arguments).map(|server| {
                let arguments: Vec<_> = server.arguments.into_iter().map(text).collect();
                (text(server.path), arguments)
            });
            let expected = expected.map(|(path, arguments)| {
                let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
                (path.to_owned(), arguments)
            });
            assert_eq!(found, expected, "{path:?} {arguments:?}");
        }
    }
}
