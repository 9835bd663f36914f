//! Structures of several fields.

use std::ffi::CStr;

use bytes::Bytes;

use super::{Int, Pid, Reader, Size, Wire, Writer};
use crate::{
    Error, Malformed,
    value::{
        App, DataType, Envar, Info, InfoFlags, Key, Kval, Nspace, Packed, Pdata, PmixRank, Proc,
        ProcInfo, ProcState, Query, Text, Timeval, Topology, Value,
    },
};

/// Total size in bytes of hwloc's three structures about supported features, which have no length on the wire. They have 6, 11
/// and 15 bytes in hwloc 2.4 to 2.10.
const SUPPORT: usize = 32;

impl Writer {
    fn name(&mut self, name: &CStr) {
        let bytes = name.to_bytes_with_nul();
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a [`Kval`] item from a key and a value, without constructing a [`Kval`].
    pub fn kval(&mut self, key: &Key, value: &Value) {
        self.item_head(DataType::KVAL, 1);
        key.write(self);
        self.tagged_value(value);
    }

    fn all<T: Wire>(&mut self, values: &[T]) {
        for value in values {
            value.write(self);
        }
    }

    /// Appends the type of a value, then the value.
    pub(super) fn tagged_value(&mut self, value: &Value) {
        value.kind().write(self);
        self.value(value);
    }
}

impl Reader<'_> {
    fn name<T>(&mut self, make: impl FnOnce(&CStr) -> Result<T, Error>) -> Result<T, Error> {
        match self.text()? {
            Some(name) => make(name),
            None => Err(Error::malformed(Malformed::NoName)),
        }
    }

    fn many<T: Wire>(&mut self, count: u64) -> Result<Vec<T>, Error> {
        let count = self.within(count)?;
        self.values(count)
    }

    pub(super) fn tagged_value(&mut self) -> Result<Value, Error> {
        let kind = DataType::read(self)?;
        self.deeper(|reader| reader.value(kind))
    }
}

impl Wire for Nspace {
    const KIND: DataType = DataType::STRING;

    fn write(&self, writer: &mut Writer) {
        writer.name(self.as_c_str());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.name(Self::new)
    }
}

impl Wire for Key {
    const KIND: DataType = DataType::STRING;

    fn write(&self, writer: &mut Writer) {
        writer.name(self.as_c_str());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.name(Self::new)
    }
}

impl Wire for Proc {
    const KIND: DataType = DataType::PROC;

    fn write(&self, writer: &mut Writer) {
        self.nspace.write(writer);
        self.rank.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            nspace: reader.nspace()?,
            rank: PmixRank::read(reader)?,
        })
    }
}

impl Wire for Value {
    const KIND: DataType = DataType::VALUE;

    fn write(&self, writer: &mut Writer) {
        writer.tagged_value(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.tagged_value()
    }
}

impl Wire for Info {
    const KIND: DataType = DataType::INFO;

    fn write(&self, writer: &mut Writer) {
        self.key.write(writer);
        self.flags.write(writer);
        writer.tagged_value(&self.value);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            key: Key::read(reader)?,
            flags: InfoFlags::read(reader)?,
            value: reader.tagged_value()?,
        })
    }
}

impl Wire for Kval {
    const KIND: DataType = DataType::KVAL;

    fn write(&self, writer: &mut Writer) {
        self.key.write(writer);
        writer.tagged_value(&self.value);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            key: Key::read(reader)?,
            value: reader.tagged_value()?,
        })
    }
}

impl Wire for Pdata {
    const KIND: DataType = DataType::PDATA;

    fn write(&self, writer: &mut Writer) {
        self.proc.write(writer);
        self.key.write(writer);
        writer.tagged_value(&self.value);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            proc: Proc::read(reader)?,
            key: Key::read(reader)?,
            value: reader.tagged_value()?,
        })
    }
}

impl Wire for App {
    const KIND: DataType = DataType::APP;

    fn write(&self, writer: &mut Writer) {
        self.command.write(writer);
        Int(i32::try_from(self.argv.len()).unwrap_or(i32::MAX)).write(writer);
        writer.all(&self.argv);
        i32::try_from(self.env.len())
            .unwrap_or(i32::MAX)
            .write(writer);
        writer.all(&self.env);
        self.cwd.write(writer);
        Int(self.maxprocs).write(writer);
        Size(self.info.len() as u64).write(writer);
        writer.all(&self.info);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let command = Text::read(reader)?;
        let argc = Int::read(reader)?.0;
        let argv = reader.many(not_negative(argc)?)?;
        let envc = i32::read(reader)?;
        let env = reader.many(not_negative(envc)?)?;
        let cwd = Text::read(reader)?;
        let maxprocs = Int::read(reader)?.0;
        let Size(infos) = Size::read(reader)?;
        Ok(Self {
            command,
            argv,
            env,
            cwd,
            maxprocs,
            info: reader.deeper(|reader| reader.many(infos))?,
        })
    }
}

impl Wire for ProcInfo {
    const KIND: DataType = DataType::PROC_INFO;

    fn write(&self, writer: &mut Writer) {
        self.proc.write(writer);
        self.hostname.write(writer);
        self.executable.write(writer);
        Pid(self.pid).write(writer);
        self.state.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            proc: Proc::read(reader)?,
            hostname: Text::read(reader)?,
            executable: Text::read(reader)?,
            pid: Pid::read(reader)?.0,
            state: ProcState::read(reader)?,
        })
    }
}

impl Wire for Query {
    const KIND: DataType = DataType::QUERY;

    fn write(&self, writer: &mut Writer) {
        i32::try_from(self.keys.len())
            .unwrap_or(i32::MAX)
            .write(writer);
        writer.all(&self.keys);
        Size(self.qualifiers.len() as u64).write(writer);
        writer.all(&self.qualifiers);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let count = i32::read(reader)?;
        let keys = reader.many(not_negative(count)?)?;
        let Size(qualifiers) = Size::read(reader)?;
        Ok(Self {
            keys,
            qualifiers: reader.deeper(|reader| reader.many(qualifiers))?,
        })
    }
}

impl Wire for Envar {
    const KIND: DataType = DataType::ENVAR;

    fn write(&self, writer: &mut Writer) {
        self.name.write(writer);
        self.value.write(writer);
        self.separator.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            name: Text::read(reader)?,
            value: Text::read(reader)?,
            separator: u8::read(reader)?,
        })
    }
}

impl Wire for Timeval {
    const KIND: DataType = DataType::TIMEVAL;

    fn write(&self, writer: &mut Writer) {
        self.sec.write(writer);
        self.usec.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            sec: i64::read(reader)?,
            usec: i64::read(reader)?,
        })
    }
}

impl Wire for Packed {
    const KIND: DataType = DataType::BUFFER;

    fn write(&self, writer: &mut Writer) {
        self.kind.write(writer);
        self.bytes.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            kind: u8::read(reader)?,
            bytes: Bytes::read(reader)?,
        })
    }
}

impl Wire for Topology {
    const KIND: DataType = DataType::TOPO;

    fn write(&self, writer: &mut Writer) {
        self.xml.write(writer);
        writer.bytes.extend_from_slice(&self.support);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let xml = Text::read(reader)?;
        let support = if xml.is_some() { SUPPORT } else { 0 };
        Ok(Self {
            xml,
            support: Bytes::copy_from_slice(reader.take(support)?),
        })
    }
}

fn not_negative(count: i32) -> Result<u64, Error> {
    u64::try_from(count).map_err(|_| Error::malformed(Malformed::NegativeCount))
}
