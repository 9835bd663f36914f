//! Suggestions for mistyped words: the nearest word of a list of known ones.

/// Length of the longest word that is compared: characters of the typed word, bytes of a known one.
/// Longer words get no suggestion.
const MAX_WORD: usize = 64;

/// Returns the known word with the smallest edit distance (Damerau-Levenshtein) to `word`; the first one on a tie.
/// Ignores ASCII case.
///
/// Returns `None` if that distance exceeds a third of the length of `word`, where one edit is always allowed: a suggestion
/// further away misleads.
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
