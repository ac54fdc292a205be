//! The first wrong part: what is wrong with it?

use std::path::Path;

use super::super::tolerance::Tolerances;
use super::attention::{checked, differing};
use super::exact::Exact;
use super::found::Named;
use super::measure::Measure;
use super::ranks::slip;
use super::sides::Sides;
use base::error::{Result, shown};
use foreign::ModelPart;

/// So many rows tell what ranks did.
const ROWS: usize = 32;

/// What can be said of a wrong part: `check`'s verdict on attention, or that on a plain part as a program.
pub fn named(
    sides: &Sides,
    exact: &mut Exact,
    at: usize,
    found: Option<Measure>,
    tolerances: &Tolerances,
) -> Result<Option<Named>> {
    let (Some(node), Some(found)) = (sides.nodes().get(at), found) else { return Ok(None) };
    let slip = match sides.right.ranks.count {
        1 => None,
        _ => {
            let terms = exact.terms(at)?;
            slip(sides, at, &terms, &sides.some_rows(at, found.row, ROWS))?
        }
    };
    if let Some(fact) = slip {
        let what = tr!("the sums and pieces of the ranks").to_owned();
        return Ok(Some(Named { what, facts: vec![fact], report: None }));
    }
    if node.part == ModelPart::Attention {
        let Some((report, facts)) = checked(sides, at, tolerances)? else { return Ok(None) };
        let what = tr!("its attention, with the reference's settings and weights").to_owned();
        return Ok(Some(Named { what, facts, report }));
    }
    let partner = sides.partner(at).map(|(_, node)| node.path.clone()).unwrap_or_default();
    if matches!(node.part, ModelPart::Between | ModelPart::Layer) {
        let Some(terms) = exact.both_terms(at, found)? else { return Ok(None) };
        let [meant, made] = terms.map(|names| shown(&names.join(" + ")).into_owned());
        let what = tr!("in the reference it is {meant}, and in the port {made}", meant, made);
        return Ok(Some(Named { what, facts: Vec::new(), report: None }));
    }
    let facts = differing(&sides.left.parameters(&node.path)?, &sides.right.parameters(&partner)?)?;
    let report = match exact.beside(at, found)? {
        Some(beside) => exact.diagnosed(&beside, Path::new(&partner))?,
        None => None,
    };
    if facts.is_empty() && report.is_none() {
        return Ok(None);
    }
    let what = tr!("{part}, computed from the port's own inputs", part = node.part.told());
    Ok(Some(Named { what, facts, report }))
}
