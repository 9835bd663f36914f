//! Files that are copied to the nodes of jobs before their launch.
//!
//! A job has a source from its submission, or its spawn, to its launch. If it is refused or ended before, the nodes remove
//! what they have.

#[cfg(test)]
mod tests;

use std::mem;

use base::{JobId, NodeId, Time};
use bytes::Bytes;

use super::{Controller, ControllerOutput, Origin, spawned::not_found};
use crate::{
    planted::{self, Bug},
    preload::{FoundFile, NotFound, Source, SourceOutput},
    proto::{NotPreloaded, PreloadFailure, PreloadNews, Refusal, ToDaemon, ToFront, ToPreload},
    spec::MapFor,
};

/// Whether the files of a job are on its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// They are, or the job needs none.
    Yes,
    NotYet,
}

impl Controller {
    /// Begins to read the files of a job.
    pub(super) fn read_files(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id);
        let job = job.filter(|job| job.spec.map != MapFor::Front);
        let Some((preload, job)) = job.and_then(|job| Some((job.spec.preload.clone()?, job)))
        else {
            return;
        };
        let source = match &mut job.origin {
            Origin::Spawned { wanted, .. } if !wanted.is_empty() => {
                Source::find(preload, mem::take(wanted))
            }
            Origin::Spawned { .. } | Origin::Controlled { .. } | Origin::Front | Origin::Beside => {
                Source::new(preload)
            }
        };
        self.preloads.insert(id, source);
        self.route_preload(id);
    }

    /// Handles the files of a spawned job that were looked up.
    pub(super) fn on_files_found(&mut self, id: JobId, result: Result<Vec<FoundFile>, NotFound>) {
        let Some(source) = self.preloads.get_mut(&id) else {
            return;
        };
        match result {
            Ok(found) => {
                source.on_found(found);
                self.route_preload(id);
            }
            Err(NotFound {
                index,
                path,
                errno,
                why,
            }) => {
                let status = not_found(errno, source.is_program(index));
                let failure = PreloadFailure::Unreadable { path, why };
                let refusal = self.not_preloaded(&[], 0, failure);
                self.refuse_as(id, refusal, status);
            }
        }
    }

    /// Copies the files of a job to these nodes, and returns whether they are there.
    pub(super) fn copy_files(&mut self, id: JobId, nodes: impl Iterator<Item = NodeId>) -> Copied {
        let Some(source) = self.preloads.get_mut(&id) else {
            return Copied::Yes;
        };
        if source.is_done() {
            // From now on, the daemons remove the files when the job is over on their nodes.
            self.preloads.remove(&id);
            return Copied::Yes;
        }
        source.offer(nodes);
        self.route_preload(id);
        Copied::NotYet
    }

    pub(super) fn on_file_read(&mut self, id: JobId, result: Result<Bytes, String>) {
        if let Some(source) = self.preloads.get_mut(&id) {
            source.on_read(result);
            self.route_preload(id);
        }
    }

    pub(super) fn on_preload_news(
        &mut self,
        now: Time,
        node: NodeId,
        id: JobId,
        news: PreloadNews,
    ) {
        if let Some(source) = self.preloads.get_mut(&id) {
            source.on_news(now, node, news);
            self.route_preload(id);
        }
    }

    /// Makes the nodes remove the files of a job that is not launched.
    pub(super) fn drop_files(&mut self, id: JobId) {
        let source = self.preloads.remove(&id);
        if let Some(source) = source.filter(|_| !planted::is(Bug::FilesNotDropped)) {
            self.cast(id, &source, &ToPreload::Drop);
        }
    }

    fn cast(&mut self, job: JobId, source: &Source, what: &ToPreload) {
        let connected = source.nodes().filter(|node| self.nodes.contains_key(node));
        let told = connected.map(|node| {
            let what = what.clone();
            ControllerOutput::Daemon(node, ToDaemon::Preload { job, what })
        });
        self.outputs.extend(told);
    }

    /// Carries out what a source asks for.
    fn route_preload(&mut self, id: JobId) {
        let Some(mut source) = self.preloads.remove(&id) else {
            return;
        };
        let mut failed = None;
        let mut is_done = false;
        while let Some(output) = source.poll() {
            match output {
                SourceOutput::Find(wanted) => {
                    let find = ControllerOutput::FindFiles { job: id, wanted };
                    self.outputs.push_back(find);
                }
                SourceOutput::Read(order) => self.outputs.push_back(ControllerOutput::ReadFile {
                    job: id,
                    path: order.path,
                    offset: order.offset,
                    length: order.length,
                }),
                SourceOutput::Send(what) => self.cast(id, &source, &what),
                SourceOutput::Progress(progress) => {
                    // The front of a spawned job has ranks whose output it shows.
                    let job = self.jobs.get(&id);
                    if let Some(job) = job.filter(|job| job.is_of_front()) {
                        self.tell(job.front, ToFront::Preloading(progress));
                    }
                }
                SourceOutput::Done => is_done = true,
                SourceOutput::Failed(nodes, failure) => failed = Some((nodes, failure)),
            }
        }
        let all = source.nodes().count();
        self.preloads.insert(id, source);
        if let Some((nodes, failure)) = failed {
            self.refuse(id, self.not_preloaded(&nodes, all, failure));
        } else if is_done {
            self.launch_if_ready(id);
        }
    }

    fn not_preloaded(&self, nodes: &[NodeId], all: usize, failure: PreloadFailure) -> Refusal {
        let host = |node: &NodeId| self.nodes.get(node).map(|node| node.host.clone());
        let hosts: Vec<String> = nodes.iter().filter_map(host).collect();
        Refusal::NotPreloaded(NotPreloaded {
            others: all.saturating_sub(hosts.len()),
            hosts,
            failure,
        })
    }
}
