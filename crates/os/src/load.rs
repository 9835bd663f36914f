//! How busy this node is.

use std::fs;

/// Returns the load averages of the last 1, 5 and 15 minutes, as the kernel writes them; `None` without /proc.
#[must_use]
pub fn load_average() -> Option<[String; 3]> {
    parse(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn parse(text: &str) -> Option<[String; 3]> {
    let mut words = text.split(' ').map(str::to_owned);
    Some([words.next()?, words.next()?, words.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_numbers_are_the_load() {
        let load = parse("0.52 12.48 0.40 1/123 4567\n").unwrap();
        assert_eq!(load, ["0.52", "12.48", "0.40"]);
        assert_eq!(parse("0.52\n"), None);
        for number in load_average().unwrap() {
            number.parse::<f32>().unwrap();
        }
    }
}
