//! Files that are copied to the nodes of jobs before their launch.
//!
//! A job has a source from its submission to its launch. If it is refused or ended before, the nodes remove what they
//! have.

#[cfg(test)]
mod tests;

use base::{JobId, NodeId, Time};
use bytes::Bytes;

use super::{Controller, ControllerOutput};
use crate::{
    preload::{Source, SourceOutput},
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
        let job = self.jobs.get(&id);
        let job = job.filter(|job| job.spec.map != MapFor::Front);
        let preload = job.and_then(|job| job.spec.preload.clone());
        if let Some(preload) = preload {
            self.preloads.insert(id, Source::new(preload));
            self.route_preload(id);
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
        if let Some(source) = self.preloads.remove(&id) {
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
                SourceOutput::Read(order) => self.outputs.push_back(ControllerOutput::ReadFile {
                    job: id,
                    path: order.path,
                    offset: order.offset,
                    length: order.length,
                }),
                SourceOutput::Send(what) => self.cast(id, &source, &what),
                SourceOutput::Progress(progress) => {
                    if let Some(front) = self.jobs.get(&id).map(|job| job.front) {
                        self.tell(front, ToFront::Preloading(progress));
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
