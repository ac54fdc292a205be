//! Why keys are blocked, in words.

use base::lang;
use program::Reason;

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
        1 => tr!("1 token").to_owned(),
        count => tr!("{count} tokens", count),
    };
    match reason {
        Reason::LaterKey { query, key } => of(
            tr!("causal mask"),
            tr!("query {query} sees no key after it", query),
            tr!("key {key} lies after query {query}", key, query),
        ),
        Reason::EarlierKey { query, key } => of(
            tr!("causal mask, the wrong way round"),
            tr!("query {query} sees no key before it", query),
            tr!("key {key} lies before query {query}", key, query),
        ),
        Reason::BeforeWindow { query, key, window } => of(
            tr!("window"),
            tr!("query {query} sees only the last {window} keys", query, window),
            tr!(
                "key {key} lies before the last {window} that query {query} sees",
                key,
                window,
                query
            ),
        ),
        Reason::OutsideWindow { query, key, window } => of(
            tr!("window"),
            tr!("query {query} sees no key that is {window} positions or more away", query, window),
            tr!(
                "key {key} is {window} positions or more away from query {query}",
                key,
                window,
                query
            ),
        ),
        Reason::OtherChunk { query, key, chunk } => of(
            tr!("chunks"),
            tr!("query {query} sees only its own chunk of {chunk}", query, chunk),
            tr!("key {key} is in another chunk of {chunk} than query {query}", key, chunk, query),
        ),
        Reason::BeyondLength { item, key, length } => of(
            &tr!("padding of item {item}", item),
            tr!("the item has {length}; the keys after them are padding", length = tokens(length)),
            tr!("the item has {length}, and key {key} is padding", length = tokens(length), key),
        ),
        Reason::BlockedKey { item, key } => of(
            &tr!("key mask of item {item}", item),
            tr!("it has a 0 for these keys").to_owned(),
            tr!("it has a 0 for key {key}", key),
        ),
        Reason::OtherDocument { query, key } => of(
            tr!("documents"),
            tr!("query {query} sees only its own document", query),
            tr!("key {key} is in another document than query {query}", key, query),
        ),
        Reason::NotChosen { query, key } => of(
            tr!("selection"),
            tr!("query {query} sees only the keys that were chosen for it", query),
            tr!("key {key} was not chosen for query {query}", key, query),
        ),
        Reason::OtherBranch { query, key } => of(
            tr!("tree"),
            tr!("query {query} sees only the tokens that it comes from", query),
            tr!("query {query} does not come from key {key}", query, key),
        ),
        Reason::Given(step) => {
            of(step.as_str(), lang::text(GIVEN).to_owned(), lang::text(GIVEN).to_owned())
        }
        Reason::Infinite(step) => {
            of(step.as_str(), lang::text(INFINITE).to_owned(), lang::text(INFINITE).to_owned())
        }
    }
}

const GIVEN: &str = "it is given, and blocks here";
const INFINITE: &str = "it is given, and adds −∞ here";
