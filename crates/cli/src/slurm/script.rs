//! The batch script, and words quoted for a POSIX shell.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use crate::args::request::slurm::Batch;

/// The variables that stand for a line feed and a carriage return. `sbatch` reads options in lines of the script that begin with `#`,
/// and refuses carriage returns, so that neither is in the script itself.
const FEED: &[u8] = b"\"$rally_lf\"";
const RETURN: &[u8] = b"\"$rally_cr\"";

/// What follows the command line of `sbatch` when it is shown.
const HERE: &str = "RALLY_SCRIPT";

/// Returns the script that Slurm runs.
pub(super) fn script(batch: &Batch) -> Vec<u8> {
    let mut text = b"#!/bin/sh
rally_cr=$(printf '\\r')
rally_lf=$(printf '\\nx')
rally_lf=${rally_lf%x}
export RALLY_QUEUE_JOB=\"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}\"
"
    .to_vec();
    if batch.array.is_some() {
        text.extend(b"export RALLY_ARRAY_INDEX=\"$SLURM_ARRAY_TASK_ID\"\n");
    } else {
        text.extend(b"unset RALLY_ARRAY_INDEX\n");
    }
    // With exec, Slurm's signals reach `rally` and not a shell that waits for it.
    text.extend(b"exec");
    for word in &batch.command {
        text.push(b' ');
        text.extend(quoted(word));
    }
    text.push(b'\n');
    text
}

/// Returns the command line of `sbatch` with the script, as a shell would run it.
pub(super) fn shown(batch: &Batch) -> Vec<u8> {
    let mut text = b"sbatch".to_vec();
    for option in &batch.options {
        text.push(b' ');
        // Options have no control characters.
        text.extend(quoted(option));
    }
    text.extend(format!(" <<'{HERE}'\n").bytes());
    text.extend(script(batch));
    text.extend(format!("{HERE}\n").bytes());
    text
}

/// Quotes a word for a POSIX shell, in one line.
pub(super) fn quoted(word: &OsStr) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    let word = word.as_bytes();
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut text = Vec::with_capacity(word.len() + 2);
    let mut is_open = false;
    let turn = |text: &mut Vec<u8>, is_open: &mut bool, open: bool| {
        if *is_open != open {
            text.push(b'\'');
            *is_open = open;
        }
    };
    for byte in word {
        let special = match byte {
            b'\'' => &b"\\'"[..],
            b'\n' => FEED,
            b'\r' => RETURN,
            byte => {
                turn(&mut text, &mut is_open, true);
                text.push(*byte);
                continue;
            }
        };
        turn(&mut text, &mut is_open, false);
        text.extend(special);
    }
    turn(&mut text, &mut is_open, false);
    if text.is_empty() {
        text.extend(b"''");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsString,
        io::Write as _,
        os::unix::ffi::OsStringExt as _,
        process::{Command, Stdio},
    };

    use super::*;

    fn batch(command: Vec<OsString>) -> Batch {
        Batch {
            options: vec!["--parsable".into(), "--job-name=a b".into()],
            command,
            array: None,
            output: "out".into(),
        }
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn words_are_quoted_if_they_have_to_be() {
        let cases = [
            ("", "''"),
            ("a-b=/c", "a-b=/c"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("'", "\\'"),
            ("$HOME `x` \\", "'$HOME `x` \\'"),
            ("a\nb", "'a'\"$rally_lf\"'b'"),
            ("~", "'~'"),
            ("#x", "'#x'"),
            ("*", "'*'"),
        ];
        for (word, expected) in cases {
            let quoted = quoted(OsStr::new(word));
            assert_eq!(String::from_utf8(quoted).unwrap(), expected, "{word:?}");
        }
    }

    #[test]
    fn the_script_is_shown_as_a_shell_would_run_it() {
        let batch = batch(words(&["/opt/rally", "run", "--", "./a.out", "x y"]));
        insta::assert_snapshot!(String::from_utf8(shown(&batch)).unwrap(), @r#"
        sbatch --parsable '--job-name=a b' <<'RALLY_SCRIPT'
        #!/bin/sh
        rally_cr=$(printf '\r')
        rally_lf=$(printf '\nx')
        rally_lf=${rally_lf%x}
        export RALLY_QUEUE_JOB="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"
        unset RALLY_ARRAY_INDEX
        exec /opt/rally run -- ./a.out 'x y'
        RALLY_SCRIPT
        "#);
    }

    /// Runs a script whose command prints its arguments, and returns these.
    fn given_back(words: &[OsString]) -> Vec<Vec<u8>> {
        let print = "for word do printf '%s\\000' \"$word\"; done";
        let mut command: Vec<OsString> =
            ["/bin/sh", "-c", print, "sh"].map(OsString::from).to_vec();
        command.extend(words.iter().cloned());
        let text = script(&batch(command));
        assert!(!text.contains(&b'\r'));
        let directives = text.split(|byte| *byte == b'\n').skip(1);
        assert!(directives.into_iter().all(|line| !line.starts_with(b"#")));
        let mut shell = Command::new("/bin/sh");
        shell.env("SLURM_JOB_ID", "7");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(&text).unwrap();
        let out = shell.wait_with_output().unwrap();
        assert!(out.status.success());
        let mut words: Vec<_> = out
            .stdout
            .split(|byte| *byte == 0)
            .map(<[u8]>::to_vec)
            .collect();
        words.pop();
        words
    }

    fn expect_given_back(words: &[OsString]) {
        let expected: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(given_back(words), expected);
    }

    #[test]
    fn a_shell_gives_back_the_same_words() {
        expect_given_back(&[]);
        expect_given_back(&words(&[
            "",
            " ",
            "\n",
            "\n\n",
            "\r\n#SBATCH --wrap=x\r\n",
            "'\"$(x)\\",
            "!",
            "é",
            ":",
            "--",
        ]));
        let every: Vec<OsString> = (1..=255)
            .map(|byte| OsString::from_vec(vec![b'a', byte, b'b']))
            .collect();
        expect_given_back(&every);
    }

    /// Random words, which are likely to have what is special in a shell.
    #[test]
    fn a_shell_gives_back_random_words() {
        const SPECIAL: &[u8] = b"'\"\\$`\n\r \t#~*?[]{}();&|<>!=%ab\xff\x01";
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut next = |below: usize| {
            // The constants of Knuth's MMIX.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for _ in 0..40 {
            let count = next(20);
            let words: Vec<OsString> = (0..count)
                .map(|_| {
                    let length = next(12);
                    let bytes = (0..length).map(|_| SPECIAL[next(SPECIAL.len())]);
                    OsString::from_vec(bytes.collect())
                })
                .collect();
            expect_given_back(&words);
        }
    }
}
