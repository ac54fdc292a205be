//! The known mistakes, as a list and one by one.

use unicode_width::UnicodeWidthStr;

use super::page::Block;
use base::lang;
use check::catalogue::{Mistake, catalogue};
use program::Kind;

/// Every known mistake, a line each, and the kinds of all others.
#[must_use]
pub fn bug_list() -> Vec<Block> {
    let all = catalogue();
    let width = all.iter().map(|mistake| mistake.id.len()).max().unwrap_or(0);
    let line = |mistake: &&Mistake| {
        let summary = mistake.ways.first().map_or("", |way| lang::text(way.summary));
        beside(&format!("{:width$}  ", mistake.id), summary)
    };
    let mut blocks: Vec<Block> = all.iter().map(line).collect();
    blocks.push(Block::Gap);
    blocks.push(Block::text(tr!("mistakes without a name are reported by kind:")));
    let kind = |kind: &Kind| {
        let name = kind.name();
        beside(&format!("{name:width$}  "), lang::text(kind.example()))
    };
    blocks.extend(Kind::ALL.iter().map(kind));
    blocks
}

/// A text beside its name; its further lines stand below it.
fn beside(name: &str, text: &str) -> Block {
    Block::Branch { first: name.to_owned(), below: " ".repeat(name.width()), text: text.to_owned() }
}

/// What a mistake is, why it is silent, what it looks like and how it is mended, in each of its ways.
#[must_use]
pub fn bug_page(mistake: &Mistake) -> Vec<Block> {
    let mut blocks = vec![Block::text(mistake.id)];
    for way in mistake.ways {
        blocks.extend([
            Block::Gap,
            Block::Prose(1, lang::text(way.summary).to_owned()),
            Block::Prose(1, lang::text(mistake.silent).to_owned()),
            Block::Gap,
            beside(tr!("  wrong   "), lang::text(way.wrong)),
            beside(tr!("  right   "), lang::text(way.right)),
        ]);
    }
    if !mistake.seen.is_empty() {
        blocks.push(Block::Gap);
        blocks.push(Block::Text(1, tr!("seen in {seen}", seen = lang::list(mistake.seen))));
    }
    blocks
}
