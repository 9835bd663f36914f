//! The known word that a mistyped one is nearest to.

/// Longest word that is compared; nobody mistypes longer ones.
const MAX_WORD: usize = 64;

/// The known word that differs from `word` in the fewest letters, if that is no more than a third of them. The first of
/// equally near words wins.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > MAX_WORD {
        return None;
    }
    let limit = (length / 3).max(1);
    known
        .filter(|candidate| {
            candidate.len() <= MAX_WORD && candidate.len().abs_diff(word.len()) <= limit
        })
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with the next; upper and lower case are the same letter.
fn distance(a: &str, b: &str) -> usize {
    let letters = |text: &str| {
        text.chars()
            .map(|c| c.to_ascii_lowercase())
            .collect::<Vec<_>>()
    };
    let (a, b) = (letters(a), letters(b));
    let mut before = Vec::<usize>::new();
    let mut last = (0..=b.len()).collect::<Vec<_>>();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at =
                |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&last, j) + usize::from(x != y))
                .min(at(&last, j + 1) + 1)
                .min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                cost = cost.min(at(&before, j - 1) + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(a.len())
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
    }
}
