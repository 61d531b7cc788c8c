//! Names that a typing mistake turns into each other, for hints.

/// The candidate that a typing mistake turns into `name`, if one is close enough.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|c| (edits(&name, &c.to_lowercase()), c))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, c)| c.to_owned())
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
