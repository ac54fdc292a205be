//! What the places on the axes of a run's steps are called.

use super::config::Config;
use super::tokens::Tokens;
use base::error::shown;
use program::{Name, Role};

/// What the places on the query and key axes of a run's steps are called.
#[derive(Debug, Clone)]
pub struct Labels(Config);

impl Config {
    /// The labels, if there are any.
    pub fn labels(&self) -> Option<Labels> {
        let any = self.plain.tokens.is_some() || self.plain.memory_tokens.is_some();
        any.then(|| Labels(self.clone()))
    }

    /// Single labels of several words, which were perhaps meant as one label a word: their setting, and what they are.
    pub fn phrases(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("tokens", &self.plain.tokens), ("memory_tokens", &self.plain.memory_tokens)];
        all.into_iter().filter_map(|(name, tokens)| match tokens {
            Some(Tokens::Same(labels)) => match labels.as_slice() {
                [label] if label.split_whitespace().count() > 1 => Some((name, label.as_str())),
                _ => None,
            },
            Some(Tokens::PerItem(_)) | None => None,
        })
    }
}

impl Labels {
    /// The label of the token that stands at `at` on the query axis, of `size` places, in a batch item.
    pub fn query(&self, item: usize, size: usize, at: usize) -> Option<String> {
        let Config { sizes, plain, .. } = &self.0;
        let labels = plain.tokens.as_ref()?.of(item);
        let first = if size == sizes.query_count() { sizes.first_query() } else { 0 };
        // Those of the cache stand in front.
        let cached = labels.len().checked_sub(sizes.seq_len)?;
        labels.get(cached + first + at).map(|label| visible(label))
    }

    /// The label of the token that stands at `at` on the key axis, of `size` places, of a step.
    pub fn key(&self, step: Option<Name>, item: usize, size: usize, at: usize) -> Option<String> {
        let Config { sizes, plain, .. } = &self.0;
        if sizes.is_cross {
            return plain.memory_tokens.as_ref()?.of(item).get(at).map(|label| visible(label));
        }
        let labels = plain.tokens.as_ref()?.of(item);
        let is_cache = step.is_some_and(|step| step.role() == Role::Cache);
        let position = if is_cache || size >= sizes.keys() { at } else { sizes.past_len + at };
        let unlabelled = sizes.keys().checked_sub(labels.len())?;
        labels.get(position.checked_sub(unlabelled)?).map(|label| visible(label))
    }
}

/// A label as it can be shown: spaces, which tokenizers keep, as they can be seen, and not longer than a table bears.
fn visible(label: &str) -> String {
    const LONGEST: usize = 24;
    let mut start: String = label.chars().take(LONGEST).collect();
    if start.len() < label.len() {
        start.push('…');
    }
    shown(&start.replace(' ', "␣")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn labels(settings: &Settings) -> Labels {
        Config::resolve(settings).expect("valid").labels().expect("has labels")
    }

    #[test]
    fn tokens_of_a_cache_stand_in_front() {
        let words = ["the", "cat", "sat", " on"].map(str::to_owned).to_vec();
        let settings = Settings {
            seq_len: Some(2),
            past_len: Some(2),
            tokens: Some(Tokens::Same(words)),
            queries: "1..2".parse().ok(),
            ..Settings::default()
        };
        let labels = labels(&settings);
        assert_eq!(labels.query(0, 1, 0).as_deref(), Some("␣on"));
        assert_eq!(labels.query(0, 2, 0).as_deref(), Some("sat"));
        assert_eq!(labels.key(Some(Name::K), 0, 2, 0).as_deref(), Some("sat"));
        assert_eq!(labels.key(Some(Name::KPast), 0, 2, 0).as_deref(), Some("the"));
        assert_eq!(labels.key(Some(Name::Weights), 0, 4, 1).as_deref(), Some("cat"));
    }

    #[test]
    fn every_token_has_a_label() {
        let tokens = |count: usize| Some(Tokens::Same(vec!["a".to_owned(); count]));
        let stated = Settings { seq_len: Some(4), ..Settings::default() };
        let settings = |count| Settings { tokens: tokens(count), ..stated.clone() };
        let error = Config::resolve(&settings(3)).expect_err("is one short");
        assert_eq!(error.to_string(), "tokens: 3 labels for 4 tokens");
        assert!(Config::resolve(&settings(4)).is_ok());
        let file = Some(Tokens::Same(vec!["words.npy".to_owned()]));
        let error = Config::resolve(&Settings { tokens: file, ..Settings::default() });
        let error = error.expect_err("is no label");
        assert_eq!(error.to_string(), "tokens: words.npy was read as one label, for 4 tokens");
    }
}
