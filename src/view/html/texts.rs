//! What a page says, in one place, in English; its translation is looked up where it is written.

pub const TITLE: &str = "Multi-head attention, step by step";
pub const FLOW: &str = "The flow of shapes";
pub const MENU: &str = "Menu";
pub const FOUND: &str = "What was found";
pub const STEPS: &str = "Steps";
pub const DETAILS: &str = "parameters and parts";
pub const SKIP: &str = "Skip to the step";
pub const CONTROLS: &str = "What is shown";
pub const PREVIOUS: &str = "← Previous";
pub const NEXT: &str = "Next →";
pub const PLAY: &str = "▶ Play";
pub const HEAD: &str = "Head";
pub const ITEM: &str = "Batch item";
pub const SIDE: &str = "Side";
pub const VIEW: &str = "View";
pub const COPY_NUMPY: &str = "Copy as NumPy";
pub const COPY_CSV: &str = "Copy as CSV";
pub const SHAPE: &str = "Shape";
pub const DIFFERENCE: &str = "difference";
pub const FIRST_BAD: &str = "Go to the first cell that differs";
pub const NO_SCRIPT: &str = "Without JavaScript this page lists the steps but not their numbers.";
pub const KEYS: [(&str, &str); 9] = [
    ("← →", "previous and next step; inside a table, arrows move from cell to cell"),
    ("0 … 9", "the step of that number"),
    ("h", "table or heat map"),
    ("a", "all heads side by side"),
    ("l", "lines from token to token, as thick as the weight"),
    ("[ ]", "previous and next head"),
    ("s", "recorded, recomputed or their difference, if two sides are compared"),
    ("Enter", "pin the cell and follow it back to the inputs"),
    ("Esc", "unpin it"),
];
pub const HINT: &str = "Point at a cell, or move to it with Tab and the arrow keys, to see how its number is computed.";
pub const KEYS_TITLE: &str = "Keys";
pub const VIEWS: [(&str, &str); 4] =
    [("table", "Table"), ("heat", "Heat map"), ("lines", "Lines"), ("heads", "All heads")];

pub fn kept(kept: usize, of: usize, axis: &str) -> String {
    tr!("{kept} of {of} on the {axis} axis", kept, of, axis)
}

pub fn thinned(cut: &str) -> String {
    tr!(
        "The trace is too large for one page, so this page holds only the first {cut}. Every number is that of the whole run; where a sum has terms that are not here, it says so.",
        cut
    )
}

pub fn made_by(version: &str) -> String {
    tr!("Made by mha-trace {version}. The page needs no network.", version)
}

/// What a step's badge says.
pub fn badge(name: &str) -> &'static str {
    match name {
        "same" => tr!("✓ same"),
        "noise" => tr!("≈ noise"),
        "own" => tr!("✗ own error"),
        "inherited" => tr!("↓ inherited"),
        "missing" => tr!("? one side only"),
        _ => "",
    }
}

/// The badge of a step that is wrong since one before it is, which no one has recorded.
pub fn badge_because(step: &str) -> String {
    tr!("✗ wrong because of {step} (not recorded)", step)
}

/// All texts of these tables and single words.
pub fn all() -> Vec<&'static str> {
    let single = [
        TITLE, FLOW, FOUND, STEPS, DETAILS, SKIP, CONTROLS, PREVIOUS, NEXT, PLAY, HEAD, ITEM, SIDE,
        VIEW, COPY_NUMPY, COPY_CSV, MENU, SHAPE, DIFFERENCE, FIRST_BAD, NO_SCRIPT, HINT,
        KEYS_TITLE,
    ];
    let pairs = KEYS.iter().chain(&VIEWS).chain(SCRIPT).map(|(_, text)| *text);
    single.into_iter().chain(pairs).collect()
}

/// What the script says. In braces stand names of what is put in their place.
pub const SCRIPT: &[(&str, &str)] = &[
    ("comma", ", "),
    ("sum", "sum"),
    ("factor", "factor"),
    ("value", "value"),
    ("product", "product"),
    ("blocked", "blocked"),
    ("every", "every {axis}"),
    ("given", "is given"),
    ("key", "key"),
    ("score", "score"),
    ("less", "score − max {max}"),
    ("exp", "exp"),
    ("share", "exp / {sum}"),
    ("sink", "sink"),
    ("restOut", "{count} more terms that are not on this page, together"),
    ("parts", "computed from these cells"),
    ("back", "Back to the inputs"),
    ("backNote", "At every step the largest term is followed."),
    ("pin", "Pin it (press Enter or click) to follow it back."),
    ("pinned", "Pinned. Esc unpins it."),
    (
        "not",
        "the recorded number, {value}, does not follow from the numbers that it is computed from: they give {sum}",
    ),
    ("recorded", "recorded"),
    ("notShare", "≠: the recorded number is not that share"),
    ("blockedBy", "blocked by"),
    ("from", "it comes from {cell}: "),
    ("isGiven", "NaN: {from}{place} is NaN in the input"),
    (
        "isRecorded",
        "NaN: {from}{place} is recorded as NaN, which does not follow from the numbers that it is computed from",
    ),
    (
        "emptyRow",
        "NaN: {from}every key is blocked for query {query} of item {item} in head {head}, and softmax of a row of −∞ is NaN; `mask_fill=-1e9` or `empty_rows=zero` gives numbers",
    ),
    ("infinite", "NaN: {from}∞ − ∞ or 0 · ∞; none of the numbers that it is computed from is NaN"),
    ("masked", "blocked by the {mask}: {why}"),
    ("overKeys", "keys"),
    ("overSink", "keys and the sink"),
    ("largestOf", "max of the row of {scores}"),
    ("logOf", "log Σ exp(s − max) over {over}"),
    ("allLow", "-inf, as every score is"),
    ("zero", "0, as every key is blocked"),
    ("expOf", "exp({score} − max)"),
    ("shareOf", "1 / Σ exp(s − max) over {over}"),
    ("absent", "This tensor is not on this page."),
    (
        "noFactors",
        "The numbers that this one is computed from are not on this page. This command shows them; add the flags of the run, or its file:",
    ),
    (
        "notHeld",
        "This number is not on this page. This command shows it; add the flags of the run, or its file:",
    ),
    ("none", HINT),
    ("shown", "{axis} {from}–{to} of {count}"),
    ("copied", "Copied {count} numbers."),
    ("notCopied", "The browser did not allow the copy. Here is the text:"),
    ("thinCopy", "Only the part that is on this page was copied: {shape}."),
    ("nan", "nan: not a number"),
    ("true", "true"),
    ("false", "false"),
];
