//! The known mistakes, as a list and one by one.

use std::io::{self, Write};

use crate::verdict::mutation::{Mutation, catalogue};

/// Writes every known mistake, a line each.
///
/// # Errors
/// If the writer fails.
pub fn bug_list(out: &mut dyn Write) -> io::Result<()> {
    let mut bugs: Vec<(&str, &str)> =
        catalogue().iter().map(|mutation| (mutation.id, mutation.summary)).collect();
    bugs.dedup_by(|left, right| left.0 == right.0);
    let width = bugs.iter().map(|(id, _)| id.len()).max().unwrap_or(0);
    for (id, summary) in bugs {
        writeln!(out, "{id:width$}  {summary}")?;
    }
    Ok(())
}

/// Writes what a mistake is, why it is silent, what it looks like and how it is mended, in each of its ways.
///
/// # Errors
/// If the writer fails.
pub fn bug_page(ways: &[&Mutation], out: &mut dyn Write) -> io::Result<()> {
    for (at, mutation) in ways.iter().enumerate() {
        if at == 0 {
            writeln!(out, "{}", mutation.id)?;
        }
        writeln!(out, "\n  {}", mutation.summary)?;
        writeln!(out, "  {}\n", mutation.silent)?;
        writeln!(out, "  wrong   {}", mutation.example)?;
        writeln!(out, "  right   {}", mutation.fix)?;
    }
    Ok(())
}
