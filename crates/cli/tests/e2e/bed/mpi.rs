//! Real MPI programs with ranks on eight hosts, started over ssh.

use super::expect_no_daemon;
use crate::mpi::{
    Library,
    nodes::{self, Nodes},
    tried, with_each_library,
};

with_each_library! {
    over_eight_hosts: |trial| {
        nodes::programs(trial, Nodes::Bed);
        expect_no_daemon();
    };

    over_eight_hosts_in_python: |trial| {
        nodes::python(trial, Nodes::Bed);
        expect_no_daemon();
    };
}
