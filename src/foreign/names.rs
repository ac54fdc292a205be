//! The names that people's code gives to the steps.

use crate::program::Name;

/// What stands behind a name's last dot.
pub fn last_segment(name: &str) -> &str {
    name.rsplit(['.', '/']).next().unwrap_or(name)
}

/// The steps that a tensor of that name may be, the likeliest first; none for a name that is not known. Only what
/// stands behind the last dot counts, and not its case.
#[must_use]
pub fn meanings(name: &str) -> Vec<Name> {
    let last = last_segment(name).to_ascii_lowercase();
    let rank = |step: &Name| {
        let called = step.row().called.iter().find(|called| called.names.contains(&last.as_str()));
        called.map(|called| (called.rank, *step))
    };
    let mut steps: Vec<(u8, Name)> = Name::ALL.iter().filter_map(rank).collect();
    steps.sort_unstable();
    steps.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_tells_in_any_case() {
        let weights = [Name::Weights, Name::WeightsDropped];
        assert_eq!(meanings("blocks.0.attn.hook_pattern"), weights);
        assert_eq!(meanings("Query"), [Name::Q, Name::QHeads, Name::QNorm, Name::QRot]);
        assert!(meanings("q_proj.weight").is_empty());
    }
}
