//! The routing file of the debuggers of PTP: who they are, and where each of them listens (`docs/ptp.md`).

use std::{
    fmt::Write as _,
    hash::{BuildHasher as _, RandomState},
    path::Path,
};

use dvm::proto::TableRow;

/// The first port on which a debugger may listen, and the number of ports among which one is chosen at random for rank 0. A debugger whose port
/// is taken tries the ones after it.
const PORTS: (u16, u16) = (50_000, 10_000);

/// Returns the text: the number of servers, and for each its rank, host and port. The master, whose rank is that number, listens nowhere.
fn text(table: &[TableRow], servers: u32, first: u16) -> String {
    let mut text = format!("{servers}\n");
    for row in table.iter().filter(|row| row.rank.0 < servers) {
        // With more debuggers than ports, those of a node still differ.
        let offset = (u32::from(first - PORTS.0) + row.rank.0) % u32::from(u16::MAX - PORTS.0);
        let port = u32::from(PORTS.0) + offset;
        let _ = writeln!(text, "{} {} {port}", row.rank.0, row.host);
    }
    text
}

/// Writes the file for debuggers that have been started. It is complete as soon as it is there.
pub(super) fn write(file: &Path, table: &[TableRow], servers: u32) -> Result<(), String> {
    let random = RandomState::new().hash_one(file);
    let first = PORTS.0 + u16::try_from(random % u64::from(PORTS.1)).unwrap_or_default();
    let text = text(table, servers, first);
    os::publish(file, text.as_bytes()).map_err(|why| {
        format!(
            "the debuggers cannot find each other: cannot write `{}`: {why}",
            message::visible::line(&file.to_string_lossy())
        )
    })
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    #[test]
    fn servers_have_lines_and_the_master_has_none() {
        let row = |rank, host: &str| TableRow {
            rank: Rank(rank),
            host: host.to_owned(),
            executable: "sdm".into(),
            pid: 1,
        };
        let table = [row(0, "n0"), row(1, "n0"), row(2, "n1"), row(3, "n1")];
        assert_eq!(
            text(&table, 3, 50_007),
            "3\n0 n0 50007\n1 n0 50008\n2 n1 50009\n"
        );
        // The last port is followed by the first one.
        assert_eq!(text(&table[..2], 2, 65_534), "2\n0 n0 65534\n1 n0 50000\n");
    }
}
