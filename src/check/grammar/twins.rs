//! Which mistakes are the same at queries, keys and values?

use std::collections::HashMap;

use super::Grammar;
use crate::candidate::Candidate;
use base::lang;
use program::{Kind, Name};

/// Steps that code makes in one line or one function.
const KIN: &[&[Name]] = &[
    &[Name::Q, Name::K, Name::V],
    &[Name::Q, Name::K],
    &[Name::K, Name::V],
    &[Name::QHeads, Name::KHeads, Name::VHeads],
    &[Name::QHeads, Name::KHeads],
    &[Name::KHeads, Name::VHeads],
    &[Name::QNorm, Name::KNorm],
    &[Name::QRot, Name::KRot],
    &[Name::QRot, Name::KRRot],
    &[Name::QRotNorm, Name::KRotNorm],
    &[Name::QClipped, Name::KClipped],
    &[Name::QClipped, Name::KClipped, Name::VClipped],
    &[Name::KDequantized, Name::VDequantized],
    &[Name::KGathered, Name::VGathered],
    &[Name::KScale, Name::VScale],
    &[Name::QDequantized, Name::KDequantized],
    &[Name::KCached, Name::VCached],
    &[Name::KWithBias, Name::VWithBias],
    &[Name::KWithZero, Name::VWithZero],
    &[Name::KRepeated, Name::VRepeated],
    &[Name::QRepeated, Name::KRepeated],
    &[Name::Q, Name::K, Name::V, Name::Output],
    &[Name::PosK, Name::PosQ],
    &[Name::C2pPicked, Name::P2cPicked],
    &[Name::C2p, Name::P2c],
    &[Name::Scores, Name::C2p, Name::P2c],
];

/// Steps and parameters whose gradients code makes in one function.
const OF_GRADIENTS: &[&[Name]] = &[
    &[Name::WQ, Name::WK, Name::WV],
    &[Name::WQ, Name::WK],
    &[Name::BQ, Name::BK, Name::BV],
    &[Name::WQNorm, Name::WKNorm],
    &[Name::BiasK, Name::BiasV],
    &[Name::KRot, Name::VHeads],
];

/// Those steps, and their gradients and the others.
fn all_kin() -> Vec<Vec<Name>> {
    let gradients = |kin: &&[Name]| kin.iter().map(|name| name.gradient()).collect();
    let of_gradients = KIN.iter().chain(OF_GRADIENTS).map(gradients);
    KIN.iter().map(|kin| kin.to_vec()).chain(of_gradients).collect()
}

impl Grammar<'_> {
    pub(super) fn twins(&mut self) {
        let all_kin = all_kin();
        let at_one = self.found.iter().filter_map(|made| {
            let at = made.edits.first()?.at;
            let is_kin = all_kin.iter().any(|kin| kin.contains(&at));
            let is_at = is_kin && made.edits.iter().all(|edit| edit.at == at);
            is_at.then(|| (at, words(made, at), made))
        });
        let at_one: Vec<(Name, String, &Candidate)> = at_one.collect();
        let mut alike: HashMap<(Name, &str, &str), &Candidate> = HashMap::new();
        for (at, told, made) in &at_one {
            alike.entry((*at, made.kind.name(), told)).or_insert(made);
        }
        let mut all = Vec::new();
        for kin in &all_kin {
            let [first, others @ ..] = kin.as_slice() else { continue };
            for (_, told, made) in at_one.iter().filter(|(at, ..)| at == first) {
                let twin = |name: &Name| alike.get(&(*name, made.kind.name(), told));
                let Some(twins) = others.iter().map(twin).collect::<Option<Vec<_>>>() else {
                    continue;
                };
                let edits = twins.iter().flat_map(|other| other.edits.clone());
                let names: Vec<&str> = kin.iter().map(|name| name.as_str()).collect();
                all.push(Candidate {
                    edits: made.edits.iter().cloned().chain(edits).collect(),
                    summary: format!("{}: {told}", lang::list(&names)),
                    // One line of code, made once; all that projects is seldom one.
                    cost: made.cost + u32::from(kin.contains(&Name::Output)),
                    ..(*made).clone()
                });
            }
        }
        self.found.extend(all);
        self.exchanged_twins();
    }

    /// Two steps of the queries in the other order, and the same two of the keys.
    fn exchanged_twins(&mut self) {
        let of_keys = |name: Name| Name::named(&name.as_str().replacen('q', "k", 1));
        let is_pair = |made: &&Candidate| match made.edits.as_slice() {
            [first, second] => first.at != second.at && made.kind == Kind::Moved,
            _ => false,
        };
        let mut all = Vec::new();
        for made in self.found.iter().filter(is_pair) {
            let Some(at) = made.edits.last().map(|edit| edit.at) else { continue };
            let twins: Option<Vec<Name>> = made.edits.iter().map(|edit| of_keys(edit.at)).collect();
            let (Some(twins), Some(twin)) = (twins, of_keys(at)) else { continue };
            let told = words(made, at);
            let is_it = |other: &&Candidate| {
                let names = other.edits.iter().map(|edit| edit.at);
                at != twin && names.eq(twins.iter().copied()) && words(other, twin) == told
            };
            let Some(other) = self.found.iter().filter(is_pair).find(is_it) else { continue };
            all.push(Candidate {
                edits: made.edits.iter().chain(&other.edits).cloned().collect(),
                summary: format!("{at}, {twin}: {told}"),
                ..made.clone()
            });
        }
        self.found.extend(all);
    }
}

/// What a mistake is, without the names of its stream.
fn words(made: &Candidate, at: Name) -> String {
    let told = made.summary.strip_prefix(at.as_str()).unwrap_or(&made.summary);
    let told = told.strip_prefix(": ").unwrap_or(told);
    let mut words = told.to_owned();
    let of_stream = at.as_str().split('_').find(|part| ["q", "k", "v"].contains(part));
    if let Some(letter) = of_stream.unwrap_or(at.as_str()).chars().next() {
        for place in [
            "heads",
            "norm",
            "rot",
            "clipped",
            "past",
            "cached",
            "repeated",
            "quantized",
            "scale",
            "zero_point",
        ] {
            words = words.replace(&format!("{letter}_{place}"), place);
        }
        for parameter in ["w", "b"] {
            words =
                words.replace(&format!("{parameter}_pos_{letter}"), &format!("{parameter}_pos"));
            for end in ["_norm", ""] {
                words = words
                    .replace(&format!("{parameter}_{letter}{end}"), &format!("{parameter}{end}"));
            }
        }
    }
    words
}
