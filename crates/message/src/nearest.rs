//! The word that somebody may have meant: of a list of known ones, the nearest to what they wrote.

/// Longest word that is compared; nobody mistypes longer ones.
const MAX_WORD: usize = 64;

/// The known word that a mistyped one is nearest to: the first of those that differ in the fewest letters, if these are no more
/// than a third. A suggestion that is further away misleads. Upper and lower case are the same letter.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > MAX_WORD {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let limit = (length / 3).max(1);
    known
        .filter(|candidate| candidate.len() <= MAX_WORD)
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(&lower, &candidate.to_ascii_lowercase());
            (distance, candidate)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["slot", "node", "core", "package", "hwthread", "numa"];
        for (word, meant) in [
            ("slto", Some("slot")),
            ("cores", Some("core")),
            ("pakage", Some("package")),
            ("HWTHREADS", Some("hwthread")),
            ("nmua", Some("numa")),
            ("gpu", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known.into_iter()), meant, "{word}");
        }
        let long = "a".repeat(MAX_WORD + 1);
        assert_eq!(nearest(&long, std::iter::once(&*long)), None);
    }
}
