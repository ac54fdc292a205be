//! Pages are for all readers: axe-core, whose file `MHA_TRACE_AXE` names, finds nothing to complain of.

use std::fs;

use serde_json::json;

use super::browser::{browse, written};

const PROBE: &str = "
    const found = [];
    for (const view of ['table', 'heat', 'heads']) {
        for (const at of ['#x/0/0/0', '#mask', '#scores/0/1/2/1', '#weights/0/0/2/1']) {
            await open(at);
            await click(query(`[data-view=${view}]`));
            document.querySelectorAll('details').forEach((box) => { box.open = true; });
            // A step comes into view within 300 ms; what is read is where that ends.
            document.getAnimations().forEach((motion) => { motion.finish(); });
            const { violations } = await axe.run(document, { rules: { 'color-contrast': { enabled: true } } });
            for (const { id, nodes } of violations) found.push([view, at, id, nodes[0].html.slice(0, 200)]);
        }
    }
    return found;
";

#[test]
fn axe_finds_no_violation() {
    let Some(axe) = std::env::var_os("MHA_TRACE_AXE") else {
        eprintln!("skipped: MHA_TRACE_AXE names no file of axe-core");
        return;
    };
    let axe = fs::read_to_string(axe).expect("MHA_TRACE_AXE can be read");
    let pages = [
        written(&["-q", "-b", "2", "--tokens", "the,cat,sat,down"], 0),
        written(&["check", "tests/cli/inputs/scale-missing.json", "-q"], 1),
    ];
    for page in pages {
        // In front of the page's own scripts.
        let page = page.replacen("<body>", &format!("<body><script>{axe}</script>"), 1);
        let Some(told) = browse(&page, "", PROBE) else { return };
        assert_eq!(told, json!([]));
    }
}
