//! No input causes a panic, and the program's arguments are never changed.

use std::ffi::OsStr;

use proptest::prelude::*;

use super::*;

/// Generates names of all options, ours and foreign, and a few unknown ones.
fn any_word() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = spellings()
        .flat_map(|spelling| spelling.names.iter().copied())
        .collect();
    let ours: Vec<String> = Native::of_run().names().map(str::to_owned).collect();
    prop_oneof![
        proptest::sample::select(names).prop_map(|name| format!("-{name}")),
        proptest::sample::select(ours.clone()).prop_map(|name| format!("--{name}")),
        proptest::sample::select(ours).prop_map(|name| format!("-{name}=x")),
        "-{0,2}[a-zA-Z:=,0-9%*]{0,6}",
        Just(":".to_owned()),
        Just("--".to_owned()),
    ]
}

fn any_personality() -> impl Strategy<Value = Personality> {
    proptest::sample::select(Personality::ALL.to_vec())
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        personality in any_personality(),
        words in proptest::collection::vec(any_word(), 0..12),
        raw in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.push(OsString::from_vec(raw));
        if let Ok(translation) = translate(&words, personality, &Native::of_run()) {
            prop_assert!(!translation.segments.is_empty());
        }
    }

    #[test]
    fn arguments_of_the_program_are_never_touched(
        personality in any_personality(),
        arguments in proptest::collection::vec(any_word(), 0..12),
    ) {
        let mut words = words("-n 2 ./program");
        words.extend(arguments.iter().map(OsString::from));
        // Later segments are the options of other apps, and may contain errors.
        let end = words.iter().position(|word| word == ":").unwrap_or(words.len());
        let first: Vec<_> = words.drain(..end).collect();
        let translation = translate(&first, personality, &Native::of_run()).unwrap();
        prop_assert_eq!(&translation.segments[0].program[..], &first[2..]);
        prop_assert_eq!(translation.segments.len(), 1);
        prop_assert_eq!(translation.segments[0].program[0].as_os_str(), OsStr::new("./program"));
    }
}
