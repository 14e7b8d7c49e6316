// Runs textlint over texts.
//
// In (stdin): {texts: [Markdown], rules: {name: options}}. Out (stdout): for each text, [{rule, line, message}].
'use strict';

const { TextlintKernel } = require('@textlint/kernel');
const markdown = require('@textlint/textlint-plugin-markdown').default;
const own = require('./rules.cjs');

async function main(asked) {
  const kernel = new TextlintKernel();
  const options = {
    filePath: 'text.md',
    ext: '.md',
    plugins: [{ pluginId: 'markdown', plugin: markdown }],
    rules: Object.entries(asked.rules).map(([name, given]) => ({ ruleId: name, rule: own[name], options: given })),
  };
  const found = [];
  for (const text of asked.texts) {
    const { messages } = await kernel.lintText(text, options);
    found.push(messages.map(({ ruleId, line, message }) => ({ rule: ruleId, line, message })));
  }
  return found;
}

const given = [];
process.stdin.on('data', (part) => given.push(part));
process.stdin.on('end', async () => process.stdout.write(JSON.stringify(await main(JSON.parse(Buffer.concat(given))))));
