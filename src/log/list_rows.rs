//! How many list items a decoder has in memory at once: those of a batch of rows, and of a row always all, over as many
//! pages as it has. A page of some bytes can repeat one item by the million.

/// List items that one batch of one column may have. Those of honest files are far below: the size of a batch goes by
/// the number of items in a row.
const MAX_BATCH_ITEMS: u64 = 1 << 26;

/// Counts rows and items of a column, page by page.
#[derive(Debug)]
pub(super) struct ListRows {
    batch_rows: u64,
    /// Of a batch. Where the decoder skips rows its batches start elsewhere, and have twice as many items at most.
    rows: u64,
    items: u64,
}

impl ListRows {
    pub(super) fn new(batch_rows: usize) -> Self {
        ListRows {
            batch_rows: (batch_rows as u64).max(1),
            rows: 0,
            items: 0,
        }
    }

    /// Counts a page of `values` items with these repetition levels in runs (RLE) of levels up to `max`.
    ///
    /// # Errors
    /// Says that a batch has too many, in words for the user.
    pub(super) fn add(&mut self, mut levels: &[u8], max: i16, values: u64) -> Result<(), String> {
        let bits = i16::BITS - max.leading_zeros();
        let width = if bits > 8 { 2 } else { 1 };
        let mut left = values;
        while left > 0 {
            let Some(head) = super::pages::varint(&mut levels) else {
                break;
            };
            if head & 1 == 0 {
                let Some((level, rest)) = levels.split_at_checked(width) else {
                    break;
                };
                levels = rest;
                let run = (head >> 1).min(left);
                left -= run;
                let starts = level.iter().all(|byte| *byte == 0);
                self.run(if starts { run } else { 0 }, run)?;
            } else {
                let packed = (head >> 1).saturating_mul(bits.into());
                let length = usize::try_from(packed).unwrap_or(usize::MAX);
                let (packed, rest) = levels.split_at(length.min(levels.len()));
                levels = rest;
                let held = packed.len() as u64 * 8 / u64::from(bits);
                let run = (head >> 1).saturating_mul(8).min(left).min(held);
                left -= run;
                self.run(starts(packed, bits as usize, run), run)?;
            }
        }
        // What is missing is the decoder's to find.
        Ok(())
    }

    /// `count` items, of which some start a row.
    fn run(&mut self, starts: u64, count: u64) -> Result<(), String> {
        let rows = self.rows.saturating_add(starts);
        if rows > self.batch_rows {
            self.rows = (rows - 1) % self.batch_rows + 1;
            // Those of the last rows are somewhere among them.
            self.items = self.rows + count.saturating_sub(starts);
        } else {
            self.rows = rows;
            self.items = self.items.saturating_add(count);
        }
        if self.items > MAX_BATCH_ITEMS {
            return Err(format!(
                "{} rows have more than {MAX_BATCH_ITEMS} list items",
                self.rows.max(1)
            ));
        }
        Ok(())
    }
}

/// How many of the first `count` levels of `bits` bits each are 0.
fn starts(packed: &[u8], bits: usize, count: u64) -> u64 {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if bits == 1 {
        let (whole, rest) = packed.split_at(packed.len().min(count / 8));
        let ones: u32 = whole.iter().map(|byte| byte.count_ones()).sum();
        let rest = rest
            .first()
            .map_or(0, |byte| byte & ((1 << (count % 8)) - 1));
        return count as u64 - u64::from(ones + rest.count_ones());
    }
    let bit = |at: usize| packed.get(at / 8).is_some_and(|b| b >> (at % 8) & 1 == 1);
    let level_is_0 = |index: &usize| !(0..bits).any(|n| bit(index * bits + n));
    (0..count).filter(level_is_0).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of `count` levels.
    fn run(level: u8, count: u64) -> Vec<u8> {
        let mut head = count << 1;
        let mut bytes = Vec::new();
        while head > 0x7f {
            bytes.push((head & 0x7f) as u8 | 0x80);
            head >>= 7;
        }
        bytes.push(head as u8);
        bytes.push(level);
        bytes
    }

    #[test]
    fn rows_are_counted_in_runs_and_in_bits() {
        let mut rows = ListRows::new(10);
        // Two rows, of one and of five items: 0, 0, 1, 1, 1, 1, then two of the next page's.
        rows.add(&[0b11, 0b0011_1100], 1, 6).unwrap();
        assert_eq!((rows.rows, rows.items), (2, 6));
        rows.add(&run(1, 4), 1, 4).unwrap();
        assert_eq!((rows.rows, rows.items), (2, 10));
        rows.add(&run(0, 8), 1, 8).unwrap();
        assert_eq!((rows.rows, rows.items), (10, 18));
        rows.add(&run(0, 3), 1, 3).unwrap();
        assert_eq!((rows.rows, rows.items), (3, 3), "the next batch");
        rows.add(&run(0, 17), 1, 17).unwrap();
        assert_eq!((rows.rows, rows.items), (10, 10));
        // Levels that are cut off, and those of two bits.
        rows.add(&[0b11], 1, 8).unwrap();
        rows.add(&[0b11, 0b0001_1000, 0], 3, 4).unwrap();
        assert_eq!((rows.rows, rows.items), (2, 4));
    }

    #[test]
    fn a_row_over_many_pages_ends() {
        let mut rows = ListRows::new(1000);
        rows.add(&run(0, 1), 1, 1).unwrap();
        for _ in 0..63 {
            rows.add(&run(1, 1 << 20), 1, 1 << 20).unwrap();
        }
        let error = rows.add(&run(1, 1 << 20), 1, 1 << 20).unwrap_err();
        assert!(error.starts_with("1 rows have more than"), "{error}");
    }
}
