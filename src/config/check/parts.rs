//! What is refused of splits and tiles.

use crate::choice::End;
use crate::config::Config;
use base::error::{Error, Result, refuse};

/// More splits than this are none that a kernel has.
const MOST: usize = 1024;

/// Refuses splits that are none, and what is not computed in parts.
pub(super) fn check(c: &Config) -> Result<()> {
    let (splits, tiles) = (&c.plain.splits, c.plain.tiles);
    if splits.is_none() && tiles.is_none() {
        return Ok(());
    }
    if splits.is_some() && tiles.is_some() {
        return refuse(tr!("both splits and tiles are set"), tr!("leave one of the two out"));
    }
    let name = if tiles.is_some() { "tiles" } else { "splits" };
    if c.end == End::Weights {
        let what =
            tr!("{name} is set, but the run ends at the weights, of which kernels have none", name);
        return refuse(what, tr!("leave out {name}, or end at the heads' outputs", name));
    }
    let beside = [
        ("backward", c.plain.backward),
        ("dropout", c.plain.dropout > 0.0),
        ("lambda_init", c.plain.lambda_init.is_some()),
    ];
    if let Some((other, _)) = beside.into_iter().find(|(_, is_set)| *is_set) {
        let what = tr!("{name} and {other} are set, and are not computed together", name, other);
        return refuse(what, tr!("leave one of the two out"));
    }
    let keys = c.sizes.all_keys();
    match splits.as_deref() {
        None => Ok(()),
        Some([count]) if (1..=MOST).contains(count) => Ok(()),
        Some([0, rest @ ..]) if !rest.is_empty() && rest.len() < MOST && rest.is_sorted() => Ok(()),
        Some(splits) => {
            let splits: Vec<String> = splits.iter().map(ToString::to_string).collect();
            let what =
                tr!("{splits} says no splits of the {keys} keys", splits = splits.join(","), keys);
            let fix = tr!(
                "give how many splits there are, such as 4, or the first key of each, from 0 on: 0,8,16"
            );
            Err(Error::tensor("splits", what, fix))
        }
    }
}
