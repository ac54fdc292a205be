//! Numbers as cells.

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

/// A difference or ratio in three digits: `1.19e-7`.
pub fn small(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.is_finite() {
        format!("{value:.2e}")
    } else {
        number(value, 0)
    }
}

/// An integer with its thousands apart: `10 485 760`.
pub fn thousands(count: u128) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A count in four digits with its SI prefix: `335.5 M`.
#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn scaled(count: u128) -> String {
    if count < 1000 {
        return count.to_string();
    }
    let mut value = count as f64;
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    format!("{value:.1} {prefix}")
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
        assert_eq!(number(f64::NEG_INFINITY, 3), "-inf");
        assert_eq!(number(f64::NAN, 3), "nan");
    }

    #[test]
    fn counts_are_scaled() {
        assert_eq!(scaled(999), "999");
        assert_eq!(scaled(335_544_320), "335.5 M");
        assert_eq!(scaled(999_999), "1.0 M");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_048_576), "1\u{202f}048\u{202f}576");
    }
}
