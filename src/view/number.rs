//! Numbers as cells.

use candle_core::DType;

use check::Comparison;
use file::shortest;

/// A number rounded to `decimals`, halves to even on its exact value as Python's formatting does; large ones in
/// scientific notation, so that one cell does not widen its column.
pub fn number(value: f64, decimals: usize) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else if value.abs() >= 1e6 {
        format!("{value:.decimals$e}")
    } else {
        format!("{value:.decimals$}")
    }
}

/// The same, but a large number of few digits with these alone: `-1e9`.
pub fn brief(value: f64, decimals: usize) -> String {
    let (rounded, exact) = (number(value, decimals), format!("{value:e}"));
    let is_large = value.is_finite() && value.abs() >= 1e6;
    if is_large && exact.len() < rounded.len() { exact } else { rounded }
}

/// A difference or ratio, from 0 up, in three digits: `1.19e-7`, `0.222`, `5.22`.
pub fn magnitude(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        0.001..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        100.0..10_000.0 => format!("{value:.0}"),
        value if value.is_finite() => format!("{value:.2e}"),
        value => number(value, 0),
    }
}

/// Two values with three digits more than it takes to tell them apart; with all where that is many.
pub fn pair(found: &Comparison) -> (String, String) {
    let &Comparison { left, right, dtypes, .. } = found;
    let size = left.abs().max(right.abs());
    let apart = (left - right).abs();
    let digits = 3.0 + (size / apart).log10().ceil().max(1.0);
    if !apart.is_finite() || digits >= 8.0 || size >= 1e6 {
        return (whole(left, dtypes.0), whole(right, dtypes.1));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a few dozen"
    )]
    let decimals = (digits - 1.0 - size.log10().floor()).clamp(1.0, 40.0) as usize;
    (format!("{left:.decimals$}"), format!("{right:.decimals$}"))
}

/// A number in all its digits; a large one of few with these alone: `-1e9`.
pub fn whole(value: f64, dtype: DType) -> String {
    let text = shortest(value, dtype);
    let brief = text.parse().map(|value: f64| format!("{value:e}"));
    let is_large = value.is_finite() && value.abs() >= 1e6;
    brief.ok().filter(|brief| is_large && brief.len() < text.len()).unwrap_or(text)
}

/// An integer with its thousands apart: `10,485,760`.
pub fn thousands(count: u128) -> String {
    if count == u128::MAX {
        return tr!("10^38 or more").to_owned();
    }
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_as_the_notebooks_print_them() {
        assert_eq!(number(-2.7332, 3), "-2.733");
        assert_eq!(number(0.0625, 3), "0.062");
        assert_eq!(number(f64::from(0.0005_f32), 3), "0.001");
        assert_eq!(number(-1e9, 3), "-1.000e9");
        assert_eq!(brief(-1e9, 3), "-1e9");
        assert_eq!(brief(-1_234_567.0, 3), "-1.235e6");
        assert_eq!(number(f64::NEG_INFINITY, 3), "-inf");
        assert_eq!(number(f64::NAN, 3), "nan");
    }

    #[test]
    fn magnitudes_have_three_digits() {
        let shown = [0.0, 1.19e-7, 0.2224, 5.216, 21.94, 2703.4, 1e9, f64::NAN].map(magnitude);
        assert_eq!(shown, ["0", "1.19e-7", "0.222", "5.22", "21.9", "2703", "1.00e9", "nan"]);
    }

    #[test]
    fn a_pair_is_as_long_as_it_takes() {
        let texts = |left, right| {
            let dtypes = (DType::F32, DType::F32);
            let (max_abs, max_rel) = (0.0, 0.0);
            let worst = Vec::new();
            let found = Comparison {
                max_abs,
                max_rel,
                mismatched: 1,
                count: 1,
                worst,
                left,
                right,
                dtypes,
            };
            let (left, right) = pair(&found);
            format!("{left} {right}")
        };
        assert_eq!(texts(-10.431_92, -5.215_959_5), "-10.43 -5.22");
        assert_eq!(texts(1.0, 0.020_376_574), "1.000 0.020");
        assert_eq!(texts(0.001_234_5, 0.001_233_4), "0.001234500 0.001233400");
        assert_eq!(texts(0.5, 0.500_000_06), "0.5 0.50000006");
        assert_eq!(texts(f64::NAN, 1.0), "NaN 1.0");
        assert_eq!(texts(0.25, f64::NEG_INFINITY), "0.25 -inf");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_048_576), "1,048,576");
    }
}
