//! Why keys are blocked, in words.

use crate::program::Reason;

/// What there is to say of a key that is blocked.
pub struct Words {
    /// The mask that blocks it.
    pub mask: String,
    /// What that mask does to the row.
    pub rule: String,
    /// What it has against the key.
    pub why: String,
}

/// Why a key is blocked.
pub fn words(reason: &Reason) -> Words {
    let of = |mask: &str, rule: String, why: String| Words { mask: mask.to_owned(), rule, why };
    let tokens = |count: &usize| match count {
        1 => "1 token".to_owned(),
        count => format!("{count} tokens"),
    };
    match reason {
        Reason::LaterKey { query, key } => of(
            "causal mask",
            format!("query {query} sees no key after it"),
            format!("key {key} lies after query {query}"),
        ),
        Reason::EarlierKey { query, key } => of(
            "causal mask, the wrong way round",
            format!("query {query} sees no key before it"),
            format!("key {key} lies before query {query}"),
        ),
        Reason::BeforeWindow { query, key, window } => of(
            "window",
            format!("query {query} sees the last {window} keys alone"),
            format!("key {key} lies before the last {window} that query {query} sees"),
        ),
        Reason::OutsideWindow { query, key, window } => of(
            "window",
            format!("query {query} sees no key that is {window} positions or more away"),
            format!("key {key} is {window} positions or more away from query {query}"),
        ),
        Reason::OtherChunk { query, key, chunk } => of(
            "chunks",
            format!("query {query} sees its own chunk of {chunk} alone"),
            format!("key {key} is of another chunk of {chunk} than query {query}"),
        ),
        Reason::BeyondLength { item, key, length } => of(
            &format!("padding of item {item}"),
            format!("the item has {}, and the keys behind them are padding", tokens(length)),
            format!("the item has {}, and key {key} is padding", tokens(length)),
        ),
        Reason::BlockedKey { item, key } => of(
            &format!("key mask of item {item}"),
            "it has a 0 for these keys".to_owned(),
            format!("it has a 0 for key {key}"),
        ),
        Reason::OtherDocument { query, key } => of(
            "documents",
            format!("query {query} sees its own document alone"),
            format!("key {key} is of another document than query {query}"),
        ),
        Reason::Given(step) => of(step.as_str(), GIVEN.to_owned(), GIVEN.to_owned()),
        Reason::Infinite(step) => of(step.as_str(), INFINITE.to_owned(), INFINITE.to_owned()),
    }
}

const GIVEN: &str = "it is given, and blocks here";
const INFINITE: &str = "it is given, and adds −∞ here";
