//! Were the scales of weights in few bits applied as they are stored beside them?

use super::reading::Reading;
use base::lang;
use foreign::{Contradiction, is_weight_scale};
use program::Name;

/// So many readings are tried with other scales: the likeliest, and the same with X turned.
const MOST: usize = 2;

const MISSING: &str = "quantized-scale-missing";

/// By which power of their scales weights are off that are used without them, divided by them, or scaled twice.
const WAYS: [(&str, f64); 3] =
    [(MISSING, -1.0), ("quantized-scale-inverted", -2.0), ("quantized-scale-twice", 1.0)];

/// The readings in which weights in few bits are not those that their scales make of them: all, or those of one projection.
/// Where the numbers are no codes for certain, all may have been scaled before, which is no mistake.
pub fn with_other_scales(readings: &[Reading]) -> Vec<Reading> {
    let plain = readings.iter().filter(|own| !own.is_tentative && !own.is_trivial);
    let mut all = Vec::new();
    for reading in plain.take(MOST) {
        let scales = &reading.sources.scales;
        let mut names: Vec<Name> = scales.factors.keys().copied().collect();
        names.sort_unstable();
        let single = names.iter().map(|name| vec![*name]).filter(|_| names.len() > 1);
        let parts: Vec<Vec<Name>> = [names.clone()].into_iter().chain(single).collect();
        for (id, power) in WAYS {
            for part in parts.iter().filter(|part| !part.is_empty()) {
                let rescaled = Some((part.clone(), power));
                let mut other = Reading { rescaled, is_tentative: true, ..reading.clone() };
                if id == MISSING && !scales.are_codes && part.len() == names.len() {
                    for own in other.matches.iter_mut().filter(|own| is_weight_scale(&own.tensor)) {
                        let how = tr!("not applied: the numbers are scaled already");
                        *own = own.clone().read(how);
                    }
                } else {
                    other.contradictions.push(against(id, part));
                }
                all.push(other);
            }
        }
    }
    all
}

/// That the scales of these weights are applied in another way.
fn against(id: &'static str, weights: &[Name]) -> Contradiction {
    let step = match weights {
        [Name::WK] => Name::K,
        [Name::WV] => Name::V,
        [Name::WO] => Name::Output,
        _ => Name::Q,
    };
    let names: Vec<&str> = weights.iter().map(|name| name.as_str()).collect();
    let names = lang::list(&names);
    let (recorded, summary) = match id {
        MISSING => (tr!("not applied"), tr!("{names}: codes are used without their scales", names)),
        "quantized-scale-inverted" => {
            (tr!("divided by"), tr!("{names}: codes are divided by their scales", names))
        }
        _ => (tr!("applied twice"), tr!("{names}: codes are scaled twice", names)),
    };
    let both = [tr!("applied once"), recorded].map(str::to_owned);
    Contradiction::told("weights", step, both, summary).named(id)
}
