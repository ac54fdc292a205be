//! Transcripts of commands, on machines of every kind.

use std::borrow::Cow;

/// A transcript as this machine has to print it. The last digits that stand in it are those of processors that multiply and
/// add without rounding in between, and of the exponentials of Linux; elsewhere, of every line of output only what stands
/// before its numbers is compared.
pub fn here(transcript: &str) -> Cow<'_, str> {
    if has_the_last_digits() {
        return transcript.into();
    }
    let mut is_output = false;
    let lines = transcript.split('\n').map(|line| {
        match line {
            _ if line.starts_with("```") => is_output = !is_output,
            _ if is_output && !line.starts_with(['$', '>', '?']) => return before_numbers(line),
            _ => {}
        }
        line.into()
    });
    lines.collect::<Vec<Cow<str>>>().join("\n").into()
}

/// Whether numbers have the last digits that are in transcripts.
pub fn has_the_last_digits() -> bool {
    #[cfg(target_arch = "x86_64")]
    let fuses = is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let fuses = true;
    fuses && cfg!(target_os = "linux")
}

/// A line up to what rounding decides: a number with decimals, a row or a rule of a table, whose columns are as wide as their
/// numbers, or the step in which rounding is largest.
fn before_numbers(line: &str) -> Cow<'_, str> {
    let is_decimal = |at: usize| {
        let (left, right) = line.split_at(at);
        let (left, right) = (left.chars().next_back(), right.chars().nth(1));
        [left, right].iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_digit()))
    };
    let points = line.match_indices('.').filter(|(at, _)| is_decimal(*at)).map(|(at, _)| at);
    let first = points.chain(line.find(['│', '─'])).chain(line.find("run's own rounding")).min();
    let Some(before) = first.and_then(|first| line.get(..first)) else { return line.into() };
    let whole = before.trim_end_matches(|digit: char| digit.is_ascii_digit() || digit == '-');
    format!("{whole}[..]").into()
}
