//! Which parameters does a module lack that its config states?

use super::finding::Contradiction;
use base::error::{Result, quoted};
use file::{Entry, Record};
use foreign::{LACKS, numbers};
use program::Name;

/// The setting that states biases.
pub const BIAS: &str = "bias";

/// Takes out of a file which biases a module lacks though its config states them.
///
/// # Errors
/// If candle fails.
pub fn lacking(record: &mut Record) -> Result<Vec<Contradiction>> {
    let is_it = |entry: &mut Entry| entry.name.starts_with(LACKS);
    let taken: Vec<Entry> = record.entries.extract_if(.., is_it).collect();
    let told = |entry: Entry| {
        let name = entry.name.strip_prefix(LACKS).unwrap_or_default();
        let lengths: Vec<String> = numbers(&entry.tensor)?.iter().map(f64::to_string).collect();
        let stated = format!("[{}]", lengths.join(", "));
        let summary = tr!(
            "{name} was stated, of shape {stated}; the module holds none",
            name = quoted(name),
            stated
        );
        let (recorded, step) = ("none".to_owned(), Name::Output);
        Ok(Contradiction::told(BIAS, step, [stated, recorded], summary))
    };
    taken.into_iter().map(told).collect()
}
