//! Rows as user bytes: JSON lines, CSV, an Arrow stream. Knows Arrow batches in a table's types; never tables, files
//! or who reads the bytes.
//!
//! What the text forms promise: nothing is lost, so that the bytes can be read back into the same values.
//!
//! | type | JSON lines | CSV |
//! |---|---|---|
//! | NULL | `null`, never a missing key | nothing between the commas |
//! | string | string | the text; the empty one is `""` |
//! | integers | number, all digits | the same |
//! | decimal(p,s) | number with s digits after the point, all digits | the same |
//! | float, double | the shortest number that reads back as the same; `"NaN"`, `"Infinity"`, `"-Infinity"` | the same, bare |
//! | boolean | `true`, `false` | the same |
//! | date | `"2026-11-30"`; years beyond 0000…9999 have a sign | the same, bare |
//! | timestamp | `"2026-11-30T12:00:00.000000Z"` | the same, bare |
//! | timestamp_ntz | `"2026-11-30T12:00:00.000000"` | the same, bare |
//! | binary | hexadecimal, lower case | the same; the empty one is `""` |
//! | struct | object with all its fields, in order | the JSON text |
//! | array | array | the JSON text |
//! | map | array of `{"key":…,"value":…}` in the stored order, whatever the key's type | the JSON text |
//! | variant | object of `metadata` and `value`, in hexadecimal | the JSON text |
//! | void | `null` | nothing |
//!
//! # Why
//! A map is no JSON object because keys may be numbers, dates or structs, and may come twice. Hexadecimal, not base64,
//! because Arrow's own JSON and CSV readers and SQL's `unhex` take it. A decimal is a number, not a string, because
//! that is what it is to every reader; one that makes a double of it rounds, and only that reader does.

mod text;

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;

/// Bytes of text that are gathered before they are written.
const BUFFER_BYTES: usize = 128 * 1024;
/// A continuation mark and the length of a message that never comes.
const CUT_OFF: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 8, 0, 0, 0];

/// A form of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a row, one row a line.
    JsonLines,
    /// RFC 4180 with a header and `\n` line ends. NULL and the empty string differ as for PostgreSQL's COPY.
    Csv,
    /// The Arrow IPC streaming format.
    Arrow,
}

/// Rows that can't be written.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("writing rows: {0}")]
    Io(#[from] io::Error),
    #[error("writing rows: {0}")]
    Arrow(ArrowError),
    #[error("values of the Arrow type {0} have no text form")]
    Type(String),
}

impl FormatError {
    /// Whether the reader of the bytes has gone away.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, FormatError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<ArrowError> for FormatError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => FormatError::Io(source),
            other => FormatError::Arrow(other),
        }
    }
}

impl crate::error::Failure for FormatError {
    fn kind(&self) -> crate::error::Kind {
        match self {
            FormatError::Io(e) => crate::error::io_kind(e),
            FormatError::Arrow(_) | FormatError::Type(_) => crate::error::Kind::Unsupported,
        }
    }
}

/// Writes batches of one schema. Nothing is complete before [`RowWriter::finish`].
pub struct RowWriter<W: Write>(Inner<W>);

enum Inner<W: Write> {
    Text {
        out: W,
        names: Vec<Vec<u8>>,
        csv: bool,
        buffer: Vec<u8>,
    },
    Arrow(Box<StreamWriter<io::BufWriter<W>>>),
}

impl<W: Write> RowWriter<W> {
    /// Writes what comes before the rows: CSV's header, Arrow's schema.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn new(format: Format, schema: &Schema, out: W) -> Result<Self, FormatError> {
        let names = schema.fields().iter().map(|f| f.name().as_str());
        Ok(RowWriter(match format {
            Format::Arrow => {
                let out = io::BufWriter::with_capacity(BUFFER_BYTES, out);
                Inner::Arrow(Box::new(StreamWriter::try_new(out, schema)?))
            }
            Format::Csv => {
                let mut buffer = Vec::new();
                for (index, name) in names.enumerate() {
                    if index > 0 {
                        buffer.push(b',');
                    }
                    text::csv_field(name.as_bytes(), &mut buffer);
                }
                buffer.push(b'\n');
                Inner::Text {
                    out,
                    names: Vec::new(),
                    csv: true,
                    buffer,
                }
            }
            Format::JsonLines => {
                let keys = names.map(|name| {
                    let mut key = Vec::new();
                    text::json_string(name, &mut key);
                    key.push(b':');
                    key
                });
                Inner::Text {
                    out,
                    names: keys.collect(),
                    csv: false,
                    buffer: Vec::new(),
                }
            }
        }))
    }

    /// Writes the rows of a batch.
    ///
    /// # Errors
    /// [`FormatError`]; part of the rows may be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        match &mut self.0 {
            Inner::Arrow(writer) => Ok(writer.write(batch)?),
            Inner::Text {
                out,
                names,
                csv,
                buffer,
            } => {
                let columns = batch.columns().iter();
                let print = if *csv { text::csv } else { text::json };
                let columns = columns.map(print).collect::<Result<Vec<_>, _>>()?;
                for row in 0..batch.num_rows() {
                    if *csv {
                        for (index, column) in columns.iter().enumerate() {
                            if index > 0 {
                                buffer.push(b',');
                            }
                            column(row, buffer);
                        }
                    } else {
                        buffer.push(b'{');
                        for (index, (name, column)) in names.iter().zip(&columns).enumerate() {
                            if index > 0 {
                                buffer.push(b',');
                            }
                            buffer.extend_from_slice(name);
                            column(row, buffer);
                        }
                        buffer.push(b'}');
                    }
                    buffer.push(b'\n');
                    if buffer.len() >= BUFFER_BYTES {
                        out.write_all(buffer)?;
                        buffer.clear();
                    }
                }
                Ok(())
            }
        }
    }

    /// Writes what comes after the rows, and everything that was held back.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn finish(self) -> Result<(), FormatError> {
        match self.0 {
            Inner::Arrow(mut writer) => {
                writer.finish()?;
                writer.get_mut().flush()?;
            }
            Inner::Text {
                mut out, buffer, ..
            } => {
                out.write_all(&buffer)?;
                out.flush()?;
            }
        }
        Ok(())
    }

    /// Ends after a failure. The rows so far are written; an Arrow stream ends in the middle of a message, since
    /// readers take a stream that merely stops for a whole one.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn abandon(self) -> Result<(), FormatError> {
        match self.0 {
            Inner::Arrow(mut writer) => {
                let out = writer.get_mut();
                out.write_all(&CUT_OFF)?;
                out.flush()?;
            }
            Inner::Text {
                mut out, buffer, ..
            } => {
                out.write_all(&buffer)?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
