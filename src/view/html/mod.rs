//! Pages for browsers: one file each, which needs nothing beside it and no network.
//!
//! The text of a page is written here, with every name and label escaped by the template. Numbers stand in it as data,
//! and a script draws the tables of the step that is looked at, from the rules that operations tell of themselves
//! ([`Pattern`](program::Pattern)).

mod address;
mod comparison;
mod flow;
mod layers;
mod layout;
mod math;
mod notes;
mod sheet;
mod texts;
mod thin;

pub use comparison::{checked_html, compared_html};
pub use layers::by_layer_html;
pub use texts::all as page_texts;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::address::address;
use self::layout::{Sheet, page};
use self::sheet::{data, sheets};
use super::header::{mask_line, numbers_line, sizes_line};
use super::page::{self as blocks, Spell};
use super::tour::stops;
use base::error::{Result, shown, shown_json};
use base::lang;
use config::Config;
use program::Trace;

impl Sheet {
    fn html(self, spell: Spell) -> Result<String> {
        let data = data(&self.steps)?;
        let first = self.found.as_ref().and_then(|found| found.first.as_ref());
        let first = first.map(|(step, cell)| address(&shown(step), cell));
        let told = json!({
            "title": self.title,
            "sides": self.sides,
            "decimals": sheet::DECIMALS,
            "steps": data.steps,
            "open": first.unwrap_or(data.opens_at),
            "texts": texts::SCRIPT.iter().map(|(key, said)| (key, blocks::spelled(lang::text(said), spell))).collect::<BTreeMap<_, _>>(),
        });
        Ok(page(&self, data.notice.as_deref(), &embedded(&told)).into_string())
    }
}

/// JSON that can stand inside a script element: nothing in it ends the element or starts a comment.
fn embedded(value: &Value) -> String {
    let mut text = String::new();
    for sign in shown_json(&value.to_string()).chars() {
        match sign {
            '<' | '>' | '&' => {
                text.extend(format!("\\u{:04x}", u32::from(sign)).chars());
            }
            sign => text.push(sign),
        }
    }
    text
}

/// Messages, with their settings as the reader would state them.
fn spelled(messages: impl IntoIterator<Item = String>, spell: Spell) -> Vec<String> {
    messages.into_iter().map(|message| blocks::spelled(&message, spell)).collect()
}

/// A trace as a page: every step with its numbers, and of every number how it came about.
///
/// # Errors
/// If candle fails.
pub fn trace_html(trace: &Trace, config: &Config, spell: Spell) -> Result<String> {
    let trace = &trace.as_told();
    let steps = sheets(trace, config, Some(trace), |step| vec![Some(step.value.clone())])?;
    let sheet = Sheet {
        title: lang::text(texts::TITLE).to_owned(),
        facts: spelled([sizes_line(config), mask_line(config), numbers_line(config)], spell),
        found: None,
        sides: Vec::new(),
        steps,
        tour: stops(trace, config)?,
    };
    sheet.html(spell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_json_is_no_markup_and_the_same_json() {
        let value = json!({"</script><!--": ["\u{2028}\u{2029}&<b>\"\\"]});
        let text = embedded(&value);
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }
}
