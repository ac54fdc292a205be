//! The addresses of steps and cells on a page.

/// The address of a step or a cell on the page.
pub fn address(step: &str, cell: &[usize]) -> String {
    let mut address = "#".to_owned();
    for byte in step.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
                address.push(char::from(byte));
            }
            // As `encodeURIComponent` writes it.
            byte => address.extend(format!("%{byte:02X}").chars()),
        }
    }
    for at in cell {
        address.extend(format!("/{at}").chars());
    }
    address
}
