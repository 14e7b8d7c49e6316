// Our rules for textlint. Why each is there: CONTRIBUTING.md; the words: terms.yaml.
//
// A rule sees a paragraph, a heading or a cell of a table as `plain` makes it: code is one word without letters, a link is its
// text (to a test, nothing: its name is code), HTML is nothing. Places stay the same, so a place in the plain text is one in the source.
'use strict';

const BLOCKS = ['Paragraph', 'Header', 'TableCell'];
const INLINE = ['Emphasis', 'Strong', 'Delete', 'Link', 'LinkReference'];
const CODE = '\u2588';
const SENTENCE = /(?:[^.!?:]|(?<=\b(?:e\.g|i\.e|etc|vs|cf))\.|[.!?:](?!["')\]”]*(?:\s|$)))+[.!?:]*/gu;

function pieces(node) {
  if (node.type === 'Str') return [[node.range[0], node.raw]];
  if (node.type === 'Code') return [[node.range[0], CODE.repeat(node.raw.length)]];
  if (node.type === 'Link' && node.url.endsWith('.py')) return [];
  if (node.type === 'Html' && node.raw.startsWith('<br')) return [[node.range[0], '.']];
  return BLOCKS.includes(node.type) || INLINE.includes(node.type) ? node.children.flatMap(pieces) : [];
}

const seen = new WeakMap(); // each rule asks for the same paragraph

function plain(node) {
  if (!seen.has(node)) {
    let text = '';
    for (const [start, piece] of pieces(node)) text = text.padEnd(start - node.range[0]) + piece;
    seen.set(node, text);
  }
  return seen.get(node);
}

function rule(prepare) {
  return (context, options) => {
    const find = prepare(options);
    const check = (node) => {
      for (const [index, message] of find(plain(node), node.type)) {
        context.report(node, new context.RuleError(message, { padding: context.locator.at(index) }));
      }
    };
    return Object.fromEntries(BLOCKS.map((block) => [block, check]));
  };
}

// What follows a colon is counted alone. A list of names in code, or of numbers, is one word.
const NAMES = /(?:\u2588+|\b\d+)(?:(?:,| and| or|, and|, or)\s+(?:\u2588+|\d+))+/gu;

const length = ({ most }) =>
  function* find(text) {
    for (const { 0: sentence, index } of text.matchAll(SENTENCE)) {
      const count = sentence.replace(NAMES, CODE).split(/\s+/).filter((word) => /[\p{L}\p{N}\u2588]/u.test(word)).length;
      if (count > most) yield [index + sentence.search(/\S/), `${count} words in a sentence; ${most} at most`];
    }
  };

// "The admin who" names a person; "who" at the begin of a clause belongs to no noun. Questions and headings may ask.
const WHO = /(?:^\s*|[;:(]\s*|\b(?:and|or|but|by|of|for|to|as|so)\s+)who\b(?![^.;:]*\?)/giu;
const PRONOUN = /\b(?:whoever|whomever|somebody|someone|anybody|everybody|nobody|he|him|his)\b/giu;

const subject = () =>
  function* find(text, block) {
    for (const { 0: sentence, index } of text.matchAll(SENTENCE)) {
      const asks = block === 'Header' ? [] : sentence.matchAll(WHO);
      for (const match of asks) yield [index + match.index + match[0].length - 3, named('who')];
      for (const match of sentence.matchAll(PRONOUN)) yield [index + match.index, named(match[0])];
    }
  };

const named = (word) => `“${word}”: name the person or the part of the system`;

// A term is a whole word: not a part of a path, of a name with dots, or of a word with a hyphen.
const terms = ({ terms: table, ignoreCase }) => {
  const advice = Object.values(table);
  const one = Object.keys(table).map((pattern) => `(${pattern})`).join('|');
  const pattern = new RegExp(`(?<![\\w./-])(?:${one})(?![\\w/-]|\\.\\w)`, ignoreCase ? 'giu' : 'gu');
  return function* find(text) {
    for (const match of text.matchAll(pattern)) {
      yield [match.index, `“${match[0]}”: say ${advice[match.slice(1).findIndex((group) => group !== undefined)]}`];
    }
  };
};

module.exports = { 'sentence-length': rule(length), subject: rule(subject), retired: rule(terms), spelling: rule(terms) };
