//! The page of a machine over nodes.

use super::expect_no_daemon;
use crate::{harness::Sandbox, page::Page};

/// The head sees the processes of all nodes, but the report says on how many hosts the ranks are.
#[test]
fn a_report_shows_the_ranks_of_all_nodes() {
    let sandbox = Sandbox::new();
    let page = Page::open(&sandbox, "n1:2,n2:2");
    let key = page.enter();
    // The nodes lack the directory of the sandbox.
    let job = page.submit(&["-n", "4", "--wdir", "/", "sleep", "1000"]);
    page.order_report(&job, &key);
    let report = page.report(&job, &key);
    assert!(
        report.body.contains("4 ranks of `sleep` on 2 hosts"),
        "{report:?}"
    );
    page.close();
    expect_no_daemon();
}
