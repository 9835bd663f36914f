//! Patterns for names, and comparison of host names.

use base::HostList;

/// Returns true if a name matches a pattern: `*` matches any text, `?` any one character, and every other character itself.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // The position of the last `*`, and how far in the name it extends: on a mismatch only that `*` has to match more.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&expected) if expected == '?' || expected == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((place, reach)) = star else {
                    return false;
                };
                star = Some((place, reach + 1));
                at = place + 1;
                in_name = reach + 1;
            }
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

/// Returns the part of a path after the last `/`.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns true if a name is another one with more of its domain: `n1.cluster` is `n1`, and `n1.other` is not `n1.cluster`.
fn is_longer(long: &str, short: &str) -> bool {
    let rest = long.strip_prefix(short);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// Returns true if a text can be the name of a host. It comes from the memory of a program, and becomes a word of commands such as ssh,
/// for which a word with a hyphen at its start is an option.
pub(super) fn is_name(host: &str) -> bool {
    let parsed = host.parse::<HostList>();
    parsed.is_ok_and(|list| list.iter().eq([host]))
}

/// Returns true if a host name in a launcher's table refers to this node.
#[must_use]
pub fn is_here(host: &str, own: &str) -> bool {
    // Do not cut an IP address at its dots.
    let is_name = host.chars().any(|c| c.is_ascii_alphabetic());
    host == own
        || host.is_empty()
        || host == "localhost"
        || host == "127.0.0.1"
        || (is_name && (is_longer(host, own) || is_longer(own, host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("solver", "solver", true),
            ("solver", "solver2", false),
            ("solver*", "solver2", true),
            ("*.py", "train.py", true),
            ("*.py", "train.pyc", false),
            ("t?ain*", "train.py", true),
            ("*a*b*c", "xaxbxbc", true),
            ("*a*b*c", "xaxbxb", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("[a]", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_that_are_no_options_or_lists() {
        for (host, expected) in [
            ("n1", true),
            ("n1.cluster", true),
            ("10.0.0.1", true),
            ("-oProxyCommand=x", false),
            ("-x", false),
            ("n[1-2]", false),
            ("n1,n2", false),
            ("n1 true", false),
            ("n1;x", false),
            ("", false),
        ] {
            assert_eq!(is_name(host), expected, "{host}");
        }
    }

    #[test]
    fn nodes() {
        assert!(is_here("n1.cluster", "n1"));
        assert!(is_here("n1", "n1.cluster"));
        assert!(is_here("localhost", "n1"));
        assert!(is_here("n1.cluster.site", "n1.cluster"));
        assert!(!is_here("n1.a", "n1.b"));
        assert!(!is_here("n10", "n1"));
        assert!(!is_here("n2", "n1"));
        assert!(!is_here("10.0.0.2", "10.0.0.1"));
    }
}
