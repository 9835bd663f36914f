//! Memory mappings of a process: the lines of `/proc/PID/maps` (proc_pid_maps(5)).

use std::ops::Range;

/// A memory mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses.
    pub range: Range<u64>,
    /// True if it can be read.
    pub readable: bool,
    /// True if it may change: it can be written, here or by a process that shares it.
    pub writable: bool,
    /// True if its code can be executed.
    pub executable: bool,
    /// The offset in the file where it begins, in bytes.
    pub offset: u64,
    /// The mapped file; `None` for anonymous memory.
    pub file: Option<FileId>,
    /// The path of the file as the process sees it, or a name in brackets such as `[stack]`; otherwise empty.
    pub path: String,
    /// True if the path no longer refers to the file: it was removed or replaced.
    pub deleted: bool,
}

/// The identity of a file: equal in all processes that have mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The inode number on that device.
    pub inode: u64,
}

/// Maximum number of mappings read: more than the kernel's default limit for a process (65,530).
pub const MAX_MAPPINGS: usize = 1 << 17;

const DELETED: &str = " (deleted)";

/// Parses the mappings, in ascending order as the kernel writes them. Skips lines that are not mappings.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| mapping(&String::from_utf8_lossy(line)))
        .take(MAX_MAPPINGS)
        .collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let access = words.next()?;
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or_default().trim_start();
    let deleted = inode != 0 && path.ends_with(DELETED);
    let path = if deleted {
        &path[..path.len() - DELETED.len()]
    } else {
        path
    };
    Some(Mapping {
        range: hex(start)?..hex(end)?,
        readable: access.starts_with('r'),
        writable: access.contains(['w', 's']),
        executable: access.as_bytes().get(2) == Some(&b'x'),
        offset,
        file: (inode != 0).then_some(FileId {
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            inode,
        }),
        path: path.replace("\\012", "\n"),
        deleted,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let text = b"\
55d1c0a00000-55d1c0a02000 r-xp 00001000 fe:00 1312 /usr/bin/a program (deleted)\n\
7ffd0e5f1000-7ffd0e612000 rw-p 00000000 00:00 0                          [stack]\n\
7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
7f0000002000-7f0000003000 r--s 00000000 00:01 7 /dev/shm/shared\n\
not a mapping\n";
        let maps: [Mapping; 4] = parse(text).try_into().unwrap();
        assert_eq!(maps[0].path, "/usr/bin/a program");
        assert_eq!(
            maps[0].file,
            Some(FileId {
                device: (0xfe, 0),
                inode: 1312
            })
        );
        assert!(maps[0].deleted && maps[0].executable && maps[0].readable);
        assert_eq!(maps[0].range, 0x55d1_c0a0_0000..0x55d1_c0a0_2000);
        assert_eq!(maps[0].offset, 0x1000);
        assert_eq!(maps[1].path, "[stack]");
        assert_eq!(maps[1].file, None);
        assert!(!maps[2].readable && maps[2].path.is_empty());
        assert_eq!(maps.map(|it| it.writable), [false, true, false, true]);
    }
}
