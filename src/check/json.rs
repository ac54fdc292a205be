//! How are reports written as JSON?

use candle_core::DType;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::finding::{Diagnosis, Finding, Pairs};
use super::non_finite::{NonFinite, Place};
use super::report::Report;
use super::step_report::StepReport;
use file::json_number;
use program::Kind;

/// What `check` and `diff` found, as one JSON object: `{"format": "mha-trace-report", "version": 1, "files": […]}`.
#[must_use]
pub fn reports_json(reports: &[Report]) -> Value {
    json!({ "format": "mha-trace-report", "version": 1, "files": reports })
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nothing = Diagnosis::default();
        let diagnosis = self.diagnosis.as_ref().unwrap_or(&nothing);
        let contradictions = self.contradictions.iter().map(|found| json!(found));
        let findings = diagnosis.findings.iter().flat_map(finding);
        let findings: Vec<Value> = contradictions.chain(findings).collect();
        let mut keys = serializer.serialize_map(None)?;
        keys.serialize_entry("path", &self.path)?;
        keys.serialize_entry("verdict", self.verdict().name())?;
        keys.serialize_entry("compared", &self.compared())?;
        let first = self.first_divergence().map(|step| &step.name);
        keys.serialize_entry("first_divergence", &first)?;
        keys.serialize_entry("fits_unmasked", &self.fits_unmasked)?;
        keys.serialize_entry("fits_causal", &self.fits_causal)?;
        keys.serialize_entry("fits_single_tokens", &self.fits_single_tokens)?;
        keys.serialize_entry("fits_layer", &self.fits_layer)?;
        if let Some(keys_seen) = &self.fits_keys {
            keys.serialize_entry("fits_keys", keys_seen)?;
        }
        if let Some(errors) = &self.flash {
            keys.serialize_entry("flash_tolerance", errors)?;
        }
        if let Some(mask) = &self.mask_read {
            keys.serialize_entry("mask_read", mask)?;
        }
        keys.serialize_entry("taken", &self.matches)?;
        keys.serialize_entry("not_checked", &self.unmatched)?;
        if let Some(padded) = &self.padded_rows {
            keys.serialize_entry("padded_rows", padded)?;
        }
        keys.serialize_entry("diagnosis", &findings)?;
        if let Some(file) = &self.diagnosed {
            keys.serialize_entry("diagnosed", file)?;
        }
        keys.serialize_entry("unexplained", &diagnosis.unexplained)?;
        let clues = diagnosis.clues.iter();
        let clues = clues.map(|clue| json!({ "step": clue.step, "summary": clue.summary }));
        keys.serialize_entry("clues", &clues.collect::<Vec<_>>())?;
        keys.serialize_entry("pairs", &pairs(diagnosis.pairs))?;
        if diagnosis.left_out && !diagnosis.unexplained.is_empty() {
            keys.serialize_entry("rare_mistakes_tried", &false)?;
        }
        keys.serialize_entry("non_finite", &self.non_finite)?;
        keys.serialize_entry("steps", &self.steps)?;
        keys.end()
    }
}

/// A finding; of a pair each mistake, with the other's name.
fn finding(found: &Finding) -> Vec<Value> {
    let one = |found: &Finding, with: Option<&str>| {
        let mut value = json!({ "id": found.id, "step": found.step, "summary": found.summary });
        if let Some(with) = with {
            value["with"] = json!(with);
        }
        value["kind"] = json!(found.kind.map_or("noise", Kind::name));
        if let Some(number) = &found.number {
            value["parameter"] = json!(number.parameter);
            value["meant"] = json_number(number.meant, DType::F64);
            value["found"] = json_number(number.found, DType::F64);
        }
        if let Some((axis, places)) = &found.part {
            value["part"] = json!({ axis.name(): places });
        }
        if let Some(instead) = found.instead {
            value["instead"] = json!(instead);
        }
        if !found.also.is_empty() {
            let ids: Vec<&str> = found.also.iter().map(|also| also.id).collect();
            let summaries: Vec<&str> = found.also.iter().map(|also| &*also.summary).collect();
            value["also"] = json!(ids);
            value["also_summaries"] = json!(summaries);
        }
        if found.kind.is_none() {
            value["factor"] = json!(found.factor);
        }
        value
    };
    match &found.with {
        Some(other) => vec![one(found, Some(other.id)), one(other, Some(found.id))],
        None => vec![one(found, None)],
    }
}

/// What became of pairs; null where there was no need of them.
fn pairs(pairs: Pairs) -> Value {
    match pairs {
        Pairs::Unneeded => Value::Null,
        Pairs::Tried { unlisted } => json!({ "tried": true, "unlisted": unlisted }),
        Pairs::TooLong(estimate) => json!({
            "tried": false,
            "why": "too long",
            "estimated_seconds": estimate.as_secs(),
        }),
    }
}

impl Serialize for NonFinite {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys = serializer.serialize_map(None)?;
        keys.serialize_entry("step", &self.place.step)?;
        keys.serialize_entry("index", &self.place.index)?;
        keys.serialize_entry("value", &json_number(self.value, DType::F64))?;
        keys.serialize_entry("cause", self.cause.name())?;
        if let Some(origin) = &self.origin {
            keys.serialize_entry("origin", origin)?;
        }
        keys.end()
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({ "step": self.step, "index": self.index }).serialize(serializer)
    }
}

impl Serialize for StepReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys = serializer.serialize_map(None)?;
        keys.serialize_entry("name", &self.name)?;
        keys.serialize_entry("status", self.status.name())?;
        if let Some(axes) = &self.axes {
            keys.serialize_entry("axes", &axes.names())?;
        }
        if let Some(found) = &self.comparison {
            keys.serialize_entry("max_abs", &json_number(found.max_abs, DType::F64))?;
            keys.serialize_entry("max_rel", &json_number(found.max_rel, DType::F64))?;
            keys.serialize_entry("mismatched", &found.mismatched)?;
            keys.serialize_entry("count", &found.count)?;
            keys.serialize_entry("worst", &found.worst)?;
            keys.serialize_entry("left", &json_number(found.left, found.dtypes.0))?;
            keys.serialize_entry("right", &json_number(found.right, found.dtypes.1))?;
        }
        if let Some((left, right)) = &self.shapes {
            keys.serialize_entry("shapes", &[left, right])?;
        }
        keys.end()
    }
}
