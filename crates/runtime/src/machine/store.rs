//! The store of a machine: its queue and its history, in one file of `redb` (`docs/formats/machine-store.md`).
//!
//! What is in it, is committed: a batch is stored as a whole, and on the disk when [`Store::write`] returns.
//!
//! `redb` refuses everything after an error of the file system, even if that was only full. So the file is closed then, and opened
//! again for the next call.

use std::{
    io,
    ops::Bound,
    path::{Path, PathBuf},
};

use base::JobId;
use bytes::Bytes;
use dvm::machine::{Batch, HISTORY_MAX, Key, Write};
use redb::{
    Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _,
};

const NAME: &str = "store";

/// Bytes of the file that are kept in memory.
const CACHE: usize = 256 << 10;

/// Records of the jobs in the queue, by the number of the job.
const JOBS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("jobs");
/// What these jobs run.
const SPECS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("specs");
/// Records of the jobs that are over.
const PAST: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("past");
/// The number of the next job, under 0.
const NEXT: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("next");

/// Why the store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("another machine uses it")]
    Taken,
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("a newer or much older version has written it (format {0})")]
    Format(u8),
    #[error("{0}")]
    Redb(Box<redb::Error>),
}

/// Converts an error of `redb`.
fn failed<E: Into<redb::Error>>(error: E) -> StoreError {
    match error.into() {
        redb::Error::Io(error) => StoreError::Io(error),
        redb::Error::DatabaseAlreadyOpen => StoreError::Taken,
        redb::Error::Corrupted(why) => StoreError::Damaged(why),
        redb::Error::UpgradeRequired(version) => StoreError::Format(version),
        other => StoreError::Redb(Box::new(other)),
    }
}

/// The store of a machine that has the lock of its directory.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// `None` after an error.
    database: Option<Database>,
}

impl Store {
    /// Opens the store in a directory, or makes it. Returns also what is in it; of the history see [`contents`].
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<(Key, Bytes)>), StoreError> {
        let mut store = Self {
            path: directory.join(NAME),
            database: None,
        };
        let is_new = !store.path.exists();
        let contents = store.use_database(contents)?;
        if is_new {
            // The file has to be found after a loss of power.
            os::sync_directory(directory)?;
        }
        Ok((store, contents))
    }

    /// Stores a batch.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.use_database(|database| write(database, batch))
    }

    /// Returns the records of the last `most` jobs that are over and whose numbers are below `before`; the last one comes first.
    pub(crate) fn past(&mut self, before: JobId, most: u32) -> Result<Vec<Bytes>, StoreError> {
        self.use_database(|database| past(database, before, most))
    }

    fn use_database<T>(
        &mut self,
        act: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => Builder::new()
                .set_cache_size(CACHE)
                .create(&self.path)
                .map_err(failed)?,
        };
        let result = act(&database)?;
        self.database = Some(database);
        Ok(result)
    }
}

/// Returns everything but the history, and of that the last record and those that are too old. Makes the tables, so that later reads find them.
fn contents(database: &Database) -> Result<Vec<(Key, Bytes)>, StoreError> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut found = Vec::new();
    {
        for definition in [NEXT, JOBS, SPECS] {
            let table = transaction.open_table(definition).map_err(failed)?;
            for row in table.iter().map_err(failed)? {
                let (id, value) = row.map_err(failed)?;
                let value = Bytes::copy_from_slice(value.value());
                let id = JobId(id.value());
                let key = match definition.name() {
                    "jobs" => Key::Job(id),
                    "specs" => Key::Spec(id),
                    _ => Key::Next,
                };
                found.push((key, value));
            }
        }
        let table = transaction.open_table(PAST).map_err(failed)?;
        if let Some((id, value)) = table.last().map_err(failed)? {
            let (last, value) = (id.value(), Bytes::copy_from_slice(value.value()));
            for row in table
                .range(..last.saturating_sub(HISTORY_MAX))
                .map_err(failed)?
            {
                let (id, value) = row.map_err(failed)?;
                let value = Bytes::copy_from_slice(value.value());
                found.push((Key::Past(JobId(id.value())), value));
            }
            found.push((Key::Past(JobId(last)), value));
        }
    }
    transaction.commit().map_err(failed)?;
    Ok(found)
}

fn write(database: &Database, Batch(writes): &Batch) -> Result<(), StoreError> {
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut next = transaction.open_table(NEXT).map_err(failed)?;
        let mut jobs = transaction.open_table(JOBS).map_err(failed)?;
        let mut specs = transaction.open_table(SPECS).map_err(failed)?;
        let mut past = transaction.open_table(PAST).map_err(failed)?;
        for Write { key, value } in writes {
            let (table, id) = match key {
                Key::Next => (&mut next, 0),
                Key::Job(id) => (&mut jobs, id.0),
                Key::Spec(id) => (&mut specs, id.0),
                Key::Past(id) => (&mut past, id.0),
            };
            match value {
                Some(value) => drop(table.insert(id, &**value).map_err(failed)?),
                None => drop(table.remove(id).map_err(failed)?),
            }
        }
    }
    transaction.commit().map_err(failed)
}

fn past(database: &Database, before: JobId, most: u32) -> Result<Vec<Bytes>, StoreError> {
    let transaction = database.begin_read().map_err(failed)?;
    let table = transaction.open_table(PAST).map_err(failed)?;
    let range = (Bound::Unbounded, Bound::Excluded(before.0));
    let rows = table.range::<u32>(range).map_err(failed)?;
    let last = rows.rev().take(most as usize);
    last.map(|row| {
        let (_, value) = row.map_err(failed)?;
        Ok(Bytes::copy_from_slice(value.value()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: Key, value: &'static str) -> Write {
        Write {
            key,
            value: Some(Bytes::from_static(value.as_bytes())),
        }
    }

    fn delete(key: Key) -> Write {
        Write { key, value: None }
    }

    #[test]
    fn what_was_written_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, empty) = Store::open(directory.path()).unwrap();
        assert_eq!(empty, []);
        let job = JobId(7);
        let first = vec![
            put(Key::Next, "8"),
            put(Key::Job(job), "waits"),
            put(Key::Spec(job), "program"),
            put(Key::Past(JobId(5)), "five"),
            put(Key::Past(JobId(6)), "six"),
        ];
        store.write(&Batch(first)).unwrap();
        let second = vec![put(Key::Job(job), "runs"), delete(Key::Past(JobId(5)))];
        store.write(&Batch(second)).unwrap();
        let taken = Store::open(directory.path());
        assert!(matches!(taken, Err(StoreError::Taken)));
        drop(store);

        let (mut store, found) = Store::open(directory.path()).unwrap();
        let found: Vec<(Key, &[u8])> = found.iter().map(|(key, value)| (*key, &**value)).collect();
        let expected: [(Key, &[u8]); 4] = [
            (Key::Next, b"8"),
            (Key::Job(job), b"runs"),
            (Key::Spec(job), b"program"),
            (Key::Past(JobId(6)), b"six"),
        ];
        assert_eq!(found, expected);
        let over = vec![
            delete(Key::Job(job)),
            delete(Key::Spec(job)),
            put(Key::Past(job), "seven"),
        ];
        store.write(&Batch(over)).unwrap();
        let last = |store: &mut Store, before: u32, most: u32| {
            let found = store.past(JobId(before), most).unwrap();
            let words = found
                .iter()
                .map(|one| String::from_utf8_lossy(one).into_owned());
            words.collect::<Vec<_>>()
        };
        assert_eq!(last(&mut store, 100, 10), ["seven", "six"]);
        assert_eq!(last(&mut store, 100, 1), ["seven"]);
        assert_eq!(last(&mut store, 7, 10), ["six"]);
        assert_eq!(last(&mut store, 6, 10), [""; 0]);
    }

    #[test]
    fn a_file_that_is_no_store_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = "this is no store".repeat(1000);
        os::write_private_file(directory.path(), NAME.as_ref(), bytes.as_bytes()).unwrap();
        let opened = Store::open(directory.path());
        assert!(opened.is_err(), "{opened:?}");
        let why = opened.unwrap_err().to_string();
        assert!(!why.is_empty());
    }
}
