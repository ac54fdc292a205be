//! The families of models that are known, as a list.

use super::page::Block;
use base::lang;
use foreign::known;

/// Every family: its `model_type`s, where its layers stand in a checkpoint, and what they have.
#[must_use]
pub fn model_list() -> Vec<Block> {
    let mut blocks = vec![
        Block::text("model_type"),
        Block::Text(1, tr!("where its layers are in a checkpoint: what they have").to_owned()),
        Block::Gap,
    ];
    for family in known() {
        blocks.push(Block::text(lang::list(family.types)));
        let paths: Vec<String> = family.paths.iter().map(|path| path.replace("{}", "N")).collect();
        blocks.push(Block::Text(1, format!("{}: {}", lang::list(&paths), lang::list(&family.has))));
    }
    blocks
}
