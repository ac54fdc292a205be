//! The comparison by layers as JSON.

use candle_core::DType;
use serde_json::{Value, json};

use super::super::json::reports_json;
use super::found::{ByLayer, Line};
use file::json_number;

impl ByLayer {
    /// `{"format": "mha-trace-by-layer", "version": 1, …}`, as `docs/formats.md` has it.
    #[must_use]
    pub fn json(&self) -> Value {
        let first = self.first.and_then(|at| self.lines.get(at));
        let named = self.named.as_ref().map(|named| {
            // Where there is nothing else, it says all.
            let is_all = named.facts.is_empty() && named.report.is_none();
            let facts = if is_all { std::slice::from_ref(&named.what) } else { &named.facts };
            json!({
                "facts": facts,
                "report": named.report.as_ref().map(|report| reports_json(std::slice::from_ref(report))),
            })
        });
        let matches =
            self.matches.iter().map(|(left, right)| json!({ "left": left, "right": right }));
        json!({
            "format": "mha-trace-by-layer",
            "version": 1,
            "left": self.left,
            "right": self.right,
            "verdict": self.verdict().name(),
            "compared": self.compared(),
            "first_wrong": first.map(|line| &line.name),
            "first_wrong_layer": first.and_then(|line| line.layer),
            "first_wrong_part": first.map(|line| line.part.name()),
            "cause": named,
            "ranks": self.ranks,
            "undone": self.undone,
            "aligned": self.aligned,
            "warning": self.warning,
            "matched": matches.collect::<Vec<_>>(),
            "not_compared": { "left": self.left_over.left, "right": self.left_over.right },
            "parts": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

fn line(line: &Line) -> Value {
    let number = |number: Option<f64>| number.map(|number| json_number(number, DType::F64));
    json!({
        "name": line.name,
        "part": line.part.name(),
        "layer": line.layer,
        "error": number(line.error),
        "inherited": number(line.inherited),
        "own": number(line.own),
        "known_by": line.how.name(),
        "tolerance": number(Some(line.tolerance)),
        "wrong": line.is_wrong,
        "open": line.open.is_some(),
    })
}
