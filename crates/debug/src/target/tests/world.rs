//! A fake node for tests.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;

use super::{elf, *};
use crate::{maps::FileId, memory::Unreadable};

/// The default user of processes.
pub(super) const USER: u32 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) process: Process,
    pub(super) program: String,
    pub(super) arguments: Vec<u8>,
    pub(super) environment: Option<Vec<u8>>,
    pub(super) owner: u32,
    /// The file that it has mapped, and the address of the mapping; `None` for no file.
    pub(super) file: Option<(Bytes, u64)>,
    pub(super) memory: BTreeMap<u64, Vec<u8>>,
    pub(super) answer: Option<Vec<JobTable>>,
    /// The name of its pid namespace and its pid there; `None` in the node's own namespace.
    pub(super) inside: Option<(&'static str, i32)>,
}

#[derive(Debug, Default)]
pub(super) struct World(pub(super) BTreeMap<i32, Made>);

impl World {
    /// Adds a process, whose start time equals its pid.
    pub(super) fn add(
        &mut self,
        pid: i32,
        parent: i32,
        program: &str,
        environment: &str,
    ) -> &mut Made {
        let name = names::file_name(program).chars().take(15).collect();
        let mut environment = environment.replace(' ', "\0").into_bytes();
        environment.push(0);
        let made = Made {
            process: Process {
                pid,
                parent,
                name,
                started: u64::try_from(pid).unwrap(),
                state: 'S',
                is_kernel: false,
            },
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: Some(environment),
            owner: USER,
            file: None,
            memory: BTreeMap::new(),
            answer: None,
            inside: None,
        };
        self.0.entry(pid).insert_entry(made).into_mut()
    }

    pub(super) fn find(&self, pid: i32) -> String {
        self.text(&Wish::Process(pid))
    }

    pub(super) fn text(&self, wish: &Wish) -> String {
        match find(self, wish) {
            Ok(target) => target.to_string(),
            Err(why) => format!("{why:?}"),
        }
    }

    pub(super) fn pids(&self, pid: i32) -> Vec<(u32, i32)> {
        let target = find(self, &Wish::Process(pid)).unwrap();
        let procs = target.procs.iter();
        procs.map(|(rank, proc)| (rank.0, proc.pid)).collect()
    }
}

impl Memory for Made {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let unreadable = Unreadable { address };
        let (start, bytes) = self
            .memory
            .range(..=address)
            .next_back()
            .ok_or(unreadable)?;
        let at = usize::try_from(address - start).unwrap();
        let part = bytes.get(at..).ok_or(unreadable)?;
        // The memory after a string is unmapped, but a read may extend beyond it.
        let length = part.len().min(buffer.len());
        if length == 0 {
            return Err(unreadable);
        }
        buffer.fill(0);
        buffer[..length].copy_from_slice(&part[..length]);
        Ok(())
    }
}

impl Files for Made {
    fn open(&self, _: &Path) -> Option<Bytes> {
        None
    }

    fn open_mapped(&self, _: &Mapping) -> Option<Bytes> {
        self.file.as_ref().map(|(bytes, _)| bytes.clone())
    }
}

impl System for World {
    fn processes(&self) -> Vec<Process> {
        self.0.values().map(|made| made.process.clone()).collect()
    }

    fn environment(&self, pid: i32) -> Option<Vec<u8>> {
        self.0.get(&pid)?.environment.clone()
    }

    fn arguments(&self, pid: i32) -> Option<Vec<u8>> {
        Some(self.0.get(&pid)?.arguments.clone())
    }

    fn program(&self, pid: i32) -> Option<String> {
        Some(self.0.get(&pid)?.program.clone())
    }

    fn numbering(&self, pid: i32) -> Option<Numbering<'_>> {
        let Some((namespace, _)) = self.0.get(&pid)?.inside else {
            return Some(Numbering::Ours);
        };
        Some(Numbering::Other(Box::new(move |pid| {
            let (there, number) = self.0.get(&pid)?.inside?;
            (there == namespace).then_some(number)
        })))
    }

    fn owner(&self, pid: i32) -> Option<u32> {
        Some(self.0.get(&pid)?.owner)
    }

    fn mappings(&self, pid: i32) -> Option<Vec<Mapping>> {
        let made = self.0.get(&pid)?;
        let Some((_, start)) = made.file else {
            return Some(Vec::new());
        };
        Some(vec![Mapping {
            range: start..start + 0x1000,
            readable: true,
            writable: false,
            executable: true,
            offset: 0,
            file: Some(FileId {
                device: (8, 1),
                inode: u64::try_from(pid).unwrap(),
            }),
            path: "/usr/lib/libopen-rte.so.40".into(),
            deleted: false,
        }])
    }

    fn memory(&self, pid: i32) -> Box<dyn Memory + '_> {
        Box::new(self.0[&pid].clone())
    }

    fn files(&self, pid: i32) -> Box<dyn Files + '_> {
        Box::new(self.0[&pid].clone())
    }

    fn ask_launcher(&self, pid: i32) -> Result<Vec<JobTable>, NoAnswer> {
        let answer = self.0.get(&pid).and_then(|made| made.answer.clone());
        answer.ok_or(NoAnswer::Silent)
    }

    fn host(&self) -> String {
        "n1.cluster".into()
    }

    fn user(&self) -> u32 {
        USER
    }

    fn own_pid(&self) -> i32 {
        9999
    }
}

/// The address where the fake library is mapped.
pub(super) const BASE: u64 = 0x7f00_0000_0000;

/// Gives a process the table of a launcher.
pub(super) fn give_table(made: &mut Made, job: Option<&str>, rows: &[(&str, &str, i32)]) {
    made.file = Some((elf::library(job.is_some()), BASE));
    let mut texts = 0x10_0000;
    let mut text = |memory: &mut BTreeMap<u64, Vec<u8>>, text: &str| -> u64 {
        texts += 0x1000;
        memory.insert(texts, [text.as_bytes(), &[0]].concat());
        texts
    };
    let mut bytes = Vec::new();
    for (host, program, pid) in rows {
        bytes.extend(text(&mut made.memory, host).to_le_bytes());
        bytes.extend(text(&mut made.memory, program).to_le_bytes());
        bytes.extend(pid.to_le_bytes());
        // Open MPI does not initialize the padding.
        bytes.extend([0xde, 0xad, 0xbe, 0xef]);
    }
    made.memory.insert(0x20_0000, bytes);
    let variable = |at: u64| BASE + at;
    let table: u64 = if rows.is_empty() { 0 } else { 0x20_0000 };
    let size = i32::try_from(rows.len()).unwrap();
    made.memory
        .insert(variable(elf::TABLE), table.to_le_bytes().into());
    // The bytes after these four are not part of the size.
    made.memory.insert(
        variable(elf::SIZE),
        [size.to_le_bytes(), [0xff; 4]].concat(),
    );
    made.memory
        .insert(variable(elf::STATE), 1_i32.to_le_bytes().into());
    if let Some(job) = job {
        let job = text(&mut made.memory, job);
        made.memory
            .insert(variable(elf::JOB), job.to_le_bytes().into());
    }
}

pub(super) fn ranks(world: &mut World, parent: i32, environment: impl Fn(i32) -> String) {
    for rank in 0..3 {
        world.add(100 + rank, parent, "/home/u/solver", &environment(rank));
    }
}
