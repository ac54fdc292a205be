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
pub const HEAD: &str = "Head";
pub const ITEM: &str = "Batch item";
pub const SIDE: &str = "Side";
pub const VIEW: &str = "View";
pub const COPY_NUMPY: &str = "Copy as NumPy";
pub const COPY_CSV: &str = "Copy as CSV";
pub const SHAPE: &str = "Shape";
pub const DIFFERENCE: &str = "difference";
pub const FIRST_BAD: &str = "Go to the cell where the sides first part";
pub const NO_SCRIPT: &str =
    "Without JavaScript this page shows what the steps are; their numbers are drawn by a script.";
pub const KEYS: [(&str, &str); 8] = [
    ("← →", "previous and next step; inside a table, arrows move from cell to cell"),
    ("0 … 9", "the step of that number"),
    ("h", "table or heat map"),
    ("a", "all heads side by side"),
    ("[ ]", "previous and next head"),
    ("s", "recorded, recomputed or their difference, where there are two sides"),
    ("Enter", "pin the cell and follow it back to what is given"),
    ("Esc", "let go of it"),
];
pub const HINT: &str =
    "Point at a cell, or move to it with Tab and the arrows, to see how its number came about.";
pub const KEYS_TITLE: &str = "Keys";
pub const VIEWS: [(&str, &str); 3] =
    [("table", "Table"), ("heat", "Heat map"), ("heads", "All heads")];

pub fn kept(kept: usize, of: usize, axis: &str) -> String {
    tr!("{kept} of {of} on the {axis} axis", kept, of, axis)
}

pub fn thinned(cut: &str) -> String {
    tr!(
        "The trace is too large for a page, which holds the first {cut}. Every number is that of the whole run; what is \
         left out of a sum is told beside it.",
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
        TITLE, FLOW, FOUND, STEPS, DETAILS, SKIP, CONTROLS, PREVIOUS, NEXT, HEAD, ITEM, SIDE, VIEW,
        COPY_NUMPY, COPY_CSV, MENU, SHAPE, DIFFERENCE, FIRST_BAD, NO_SCRIPT, HINT, KEYS_TITLE,
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
    ("restOut", "{count} more that this page does not hold, together"),
    ("parts", "made of these cells"),
    ("back", "Back to what is given"),
    ("backNote", "At every step the largest term is followed."),
    ("pin", "Pin it (Enter, or a click) to follow it back."),
    ("pinned", "Pinned. Esc lets go of it."),
    ("not", "the recorded number, {value}, does not follow: those that it is made of give {sum}"),
    ("recorded", "recorded"),
    ("notShare", "≠: what is recorded is not that share"),
    ("blockedBy", "blocked by"),
    ("from", "it comes from {cell}: "),
    ("isGiven", "NaN: {from}{place} is given as NaN"),
    ("isRecorded", "NaN: {from}{place} is recorded as NaN, which does not follow"),
    (
        "emptyRow",
        "NaN: {from}every key is blocked for query {query} of item {item} in head {head}, and softmax of −∞ alone is \
         NaN; `mask_fill=-1e9` or `empty_rows=zero` gives numbers",
    ),
    ("infinite", "NaN: {from}∞ − ∞ or 0 · ∞, of numbers that are none themselves"),
    ("masked", "blocked by the {mask}: {why}"),
    ("overKeys", "keys"),
    ("overSink", "keys and the sink"),
    ("largestOf", "max of the row of {scores}"),
    ("logOf", "log Σ exp(s − max) over {over}"),
    ("allLow", "-inf, as every score is"),
    ("zero", "0, as every key is blocked"),
    ("expOf", "exp({score} − max)"),
    ("shareOf", "1 / Σ exp(s − max) over {over}"),
    ("absent", "This page does not hold this tensor."),
    (
        "noFactors",
        "This page does not hold what this number is made of. The tool tells it, with the flags of the run or the file:",
    ),
    (
        "notHeld",
        "This page does not hold this number. The tool tells it, with the flags of the run or the file:",
    ),
    ("none", HINT),
    ("shown", "{axis} {from}–{to} of {count}"),
    ("copied", "Copied {count} numbers."),
    ("notCopied", "The browser does not let pages copy. Here is the text:"),
    ("thinCopy", "The copy holds the part that this page holds: {shape}."),
    ("nan", "nan: not a number"),
    ("true", "true"),
    ("false", "false"),
];
