//! Parsers for limits of memory and CPU time.

use super::ValueError;

/// Letters for units of memory, each of them 1,024 times the one before.
const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];

/// The least limit of memory, in bytes: a shell starts with it.
const MEMORY_MIN: u64 = 1 << 20;

/// The most limit of CPU time, in thousandths of a CPU: more than any node has.
const MILLI_CPUS_MAX: u32 = 65_536 * 1_000;

/// The least limit of CPU time, in thousandths of a CPU: the kernel counts no less.
const MILLI_CPUS_MIN: u32 = 10;

/// Parses a size of memory with its unit: `512M`, `2G`, `2GiB`, `1.5G`. Without a unit it would be bytes for some programs and MiB for
/// others.
pub(crate) fn memory(text: &str) -> Result<u64, ValueError> {
    let bytes = bytes_of(text).ok_or(ValueError::NotASize)?;
    match u64::try_from(bytes) {
        Ok(bytes) if bytes < MEMORY_MIN => Err(ValueError::TooLittleMemory),
        // The kernel takes sizes of a signed number.
        Ok(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err(ValueError::TooMuchMemory),
    }
}

fn bytes_of(text: &str) -> Option<u128> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    let mut letters = unit.chars();
    let letter = letters.next()?.to_ascii_uppercase();
    let power = UNITS.iter().position(|unit| *unit == letter)? + 1;
    if !matches!(letters.as_str(), "" | "iB" | "B") {
        return None;
    }
    Some((u128::from(thousandths(number)?) << (10 * power)) / 1_000)
}

/// Parses a number of CPUs, in thousandths: `4`, `0.5`, `1.25`.
pub(crate) fn cpus(text: &str) -> Result<u32, ValueError> {
    let cpus = thousandths(text).ok_or(ValueError::NotCpus)?;
    match u32::try_from(cpus) {
        Ok(cpus) if cpus < MILLI_CPUS_MIN => Err(ValueError::TooFewCpus),
        Ok(cpus) if cpus <= MILLI_CPUS_MAX => Ok(cpus),
        _ => Err(ValueError::TooMany {
            max: u64::from(MILLI_CPUS_MAX / 1_000),
        }),
    }
}

/// Parses a decimal number with at most three decimals, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<3}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_memory() {
        let cases = [
            ("512M", Ok(512 << 20)),
            ("2G", Ok(2 << 30)),
            ("2g", Ok(2 << 30)),
            ("2GiB", Ok(2 << 30)),
            ("2GB", Ok(2 << 30)),
            ("1.5G", Ok(3 << 29)),
            ("0.001T", Ok(1_099_511_627)),
            ("2048K", Ok(2 << 20)),
            ("1023K", Err(ValueError::TooLittleMemory)),
            ("0G", Err(ValueError::TooLittleMemory)),
            ("8388607T", Ok(8_388_607 << 40)),
            ("8388608T", Err(ValueError::TooMuchMemory)),
            ("99999999999999999999T", Err(ValueError::NotASize)),
            ("2", Err(ValueError::NotASize)),
            ("2P", Err(ValueError::NotASize)),
            ("2Gb", Err(ValueError::NotASize)),
            ("-2G", Err(ValueError::NotASize)),
            ("1,5G", Err(ValueError::NotASize)),
            ("1.0001G", Err(ValueError::NotASize)),
            (".5G", Err(ValueError::NotASize)),
            ("G", Err(ValueError::NotASize)),
            ("", Err(ValueError::NotASize)),
            ("2é", Err(ValueError::NotASize)),
        ];
        for (text, expected) in cases {
            assert_eq!(memory(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_of_cpus() {
        let cases = [
            ("4", Ok(4_000)),
            ("0.5", Ok(500)),
            ("1.25", Ok(1_250)),
            ("0.01", Ok(10)),
            ("0.009", Err(ValueError::TooFewCpus)),
            ("0", Err(ValueError::TooFewCpus)),
            ("65536", Ok(65_536_000)),
            ("65537", Err(ValueError::TooMany { max: 65_536 })),
            ("9999999999", Err(ValueError::TooMany { max: 65_536 })),
            ("-1", Err(ValueError::NotCpus)),
            ("150%", Err(ValueError::NotCpus)),
            ("", Err(ValueError::NotCpus)),
        ];
        for (text, expected) in cases {
            assert_eq!(cpus(text), expected, "{text}");
        }
    }
}
