//! How rows of whole numbers are written that settings state once for all batch items, or for each?

use serde::ser::{Serialize, Serializer};

use base::error::shown;

/// `3,2,4`, or `3,2/4,1` by item.
pub fn told(rows: &[Vec<usize>]) -> String {
    let row = |row: &Vec<usize>| {
        let numbers: Vec<String> = row.iter().map(ToString::to_string).collect();
        numbers.join(",")
    };
    rows.iter().map(row).collect::<Vec<_>>().join("/")
}

/// Reads what [`told`] writes; `wrong` says of a part that it is no number of the setting.
pub fn read(text: &str, wrong: fn(&str) -> String) -> Result<Vec<Vec<usize>>, String> {
    let number = |part: &str| part.trim().parse().map_err(|_| wrong(&shown(part)));
    text.split('/').map(|row| row.split(',').map(number).collect()).collect()
}

/// In JSON a row alone is a list, and several are a list of lists.
pub fn serialize<S: Serializer>(rows: &[Vec<usize>], serializer: S) -> Result<S::Ok, S::Error> {
    match rows {
        [row] => row.serialize(serializer),
        rows => rows.serialize(serializer),
    }
}
