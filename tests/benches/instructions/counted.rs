//! A wasm module with a counter in each of its functions.

use std::path::Path;

use anyhow::Result;
use walrus::ir::{
    BinaryOp, Binop, Const, GlobalGet, GlobalSet, Instr, InstrLocId, InstrSeq, InstrSeqId, Value,
    Visitor, dfs_in_order,
};
use walrus::{ConstExpr, FunctionId, GlobalId, LocalFunction, Module, ValType};

/// Beginning of the names under which the counters are exported; the function's number follows.
const COUNTER: &str = "operations of function ";

/// A module that counts its own operations.
pub(crate) struct CountedModule {
    /// The module as wasm.
    pub(crate) wasm: Vec<u8>,
    /// Names of its functions, in the order of their counters.
    pub(crate) functions: Vec<String>,
}

/// The sequences of instructions of a function.
#[derive(Default)]
struct Sequences(Vec<InstrSeqId>);

// === impl CountedModule ===

impl CountedModule {
    /// Adds the counters to a built module.
    ///
    /// # Errors
    /// When there is no such module.
    pub(crate) fn of(file: &Path) -> Result<Self> {
        let mut module = Module::from_file(file)?;
        let functions: Vec<FunctionId> = module.funcs.iter_local().map(|(id, _)| id).collect();
        let mut names = Vec::new();
        for id in functions {
            let zero = ConstExpr::Value(Value::I64(0));
            let counter = module.globals.add_local(ValType::I64, true, false, zero);
            module.exports.add(&counter_name(names.len()), counter);
            let function = module.funcs.get_mut(id);
            let name = function.name.clone();
            names.push(name.unwrap_or_else(|| format!("function {}", id.index())));
            count(function.kind.unwrap_local_mut(), counter);
        }
        Ok(Self {
            wasm: module.emit_wasm(),
            functions: names,
        })
    }
}

impl<'instr> Visitor<'instr> for Sequences {
    fn start_instr_seq(&mut self, sequence: &'instr InstrSeq) {
        self.0.push(sequence.id());
    }
}

// === free functions ===

/// The name under which the counter of a function is exported.
pub(crate) fn counter_name(function: usize) -> String {
    format!("{COUNTER}{function}")
}

/// Adds the operations of each stretch without branches to the function's counter, when it begins.
fn count(function: &mut LocalFunction, counter: GlobalId) {
    let mut sequences = Sequences::default();
    dfs_in_order(&mut sequences, function, function.entry_block());
    for id in sequences.0 {
        let sequence = function.block_mut(id);
        let mut counted = Vec::new();
        let mut stretch = Vec::new();
        for instruction in sequence.instrs.drain(..) {
            let ends = may_branch(&instruction.0);
            stretch.push(instruction);
            if ends {
                finish(&mut stretch, &mut counted, counter);
            }
        }
        finish(&mut stretch, &mut counted, counter);
        sequence.instrs = counted;
    }
}

/// Moves a stretch behind the instructions that count it.
fn finish(
    stretch: &mut Vec<(Instr, InstrLocId)>,
    counted: &mut Vec<(Instr, InstrLocId)>,
    counter: GlobalId,
) {
    let operations = stretch.iter().filter(|(instruction, _)| costs(instruction));
    let operations = operations.count() as i64;
    if operations > 0 {
        let value = Value::I64(operations);
        let op = BinaryOp::I64Add;
        let counting = [
            Instr::from(GlobalGet { global: counter }),
            Instr::from(Const { value }),
            Instr::from(Binop { op }),
            Instr::from(GlobalSet { global: counter }),
        ];
        counted.extend(counting.map(|instruction| (instruction, InstrLocId::default())));
    }
    counted.append(stretch);
}

/// Returns whether what follows an instruction may be skipped, or run more often than what is before.
fn may_branch(instruction: &Instr) -> bool {
    matches!(
        instruction,
        Instr::Block(_)
            | Instr::Loop(_)
            | Instr::IfElse(_)
            | Instr::Br(_)
            | Instr::BrIf(_)
            | Instr::BrTable(_)
            | Instr::Return(_)
            | Instr::Unreachable(_)
    )
}

/// Returns whether a compiler makes code of an instruction: locals and constants are in registers or in
/// other instructions, and blocks are only marks.
fn costs(instruction: &Instr) -> bool {
    !matches!(
        instruction,
        Instr::Block(_)
            | Instr::Loop(_)
            | Instr::LocalGet(_)
            | Instr::LocalSet(_)
            | Instr::LocalTee(_)
            | Instr::Const(_)
            | Instr::Drop(_)
    )
}
