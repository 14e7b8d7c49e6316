// What Grafana's own library makes of panels and of the answers to their queries.
//
// In (stdin): {formats: [[unit, value]], panels: [{panel, answers: {refId: Prometheus' result}}]}, panels as in a board.
// Out (stdout): {known: {…ids}, formats: [text], panels: [{fields, values, legend}]}: what a person would read.
// Law: nothing is judged here, and what the library does is not done again. Ours are the frames, which Grafana's data
// source makes of an answer (packages/grafana-prometheus/src/result_transformer.ts), and a row's labels in links.
'use strict';

// The library looks for a browser's language when it is loaded, and for a window when it runs; with a window at the
// first it would look for a document, too.
Object.defineProperty(globalThis, 'navigator', { value: { languages: ['en-US'], language: 'en-US' } });
const data = require('@grafana/data');
const { ThresholdsMode } = require('@grafana/schema');
globalThis.window = { location: {} };

const { firstValueFrom } = require('rxjs');

const theme = data.createTheme();
data.locationUtil.initialize({ config: { appSubUrl: '' }, getVariablesUrlParams: () => ({}), getTimeRangeForUrl: () => ({}) });

// Core registers each of the library's transformations once; joinByField is in the list under two names.
const transformers = new Map(Object.values(data.standardTransformers).map((one) => [one.id, one]));
data.standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((one) => ({ id: one.id, name: one.name, transformation: () => Promise.resolve(one) }))
);

const PROCESSORS = {
  color: data.identityOverrideProcessor,
  displayName: data.stringOverrideProcessor,
  links: data.dataLinksOverrideProcessor,
  mappings: data.valueMappingsOverrideProcessor,
  max: data.numberOverrideProcessor,
  min: data.numberOverrideProcessor,
  noValue: data.stringOverrideProcessor,
  thresholds: data.thresholdsOverrideProcessor,
  unit: data.unitOverrideProcessor,
};

// What a panel can set of a field. The properties of its own (custom) are in no library: those that it names.
function registry(fieldConfig) {
  const named = fieldConfig.overrides.flatMap((one) => one.properties.map((property) => property.id));
  const custom = Object.keys(fieldConfig.defaults.custom ?? {}).map((key) => `custom.${key}`);
  return new data.FieldConfigOptionsRegistry(() => [
    ...Object.entries(PROCESSORS).map(([id, process]) => ({ id, path: id, name: id, process, shouldApply: () => true })),
    ...[...new Set([...named, ...custom])]
      .filter((id) => id.startsWith('custom.'))
      .map((id) => ({
        id,
        path: id.slice('custom.'.length),
        name: id,
        isCustom: true,
        process: data.identityOverrideProcessor,
        shouldApply: () => true,
      })),
  ]);
}

// One frame a query, with the labels as columns.
function tableFrame(target, answer, several) {
  const labels = [...new Set(answer.flatMap((one) => Object.keys(one.metric).sort()))];
  return data.toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: data.FieldType.time, values: answer.map((one) => one.value[0] * 1000) },
      ...labels.map((label) => ({
        name: label,
        type: data.FieldType.string,
        values: answer.map((one) => one.metric[label] ?? ''),
      })),
      {
        name: several ? `Value #${target.refId}` : 'Value',
        type: data.FieldType.number,
        values: answer.map((one) => parseFloat(one.value[1])),
      },
    ],
  });
}

// One frame a series, named by its legend.
function seriesFrames(target, answer) {
  return answer.map((one) => {
    const points = one.values ?? [one.value];
    const legend = target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => one.metric[label] ?? '');
    const config = target.legendFormat === '__auto' ? {} : { displayNameFromDS: legend };
    return data.toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: data.FieldType.time, values: points.map(([at]) => at * 1000) },
        { name: 'Value', type: data.FieldType.number, labels: one.metric, config, values: points.map(([, value]) => parseFloat(value)) },
      ],
    });
  });
}

// The labels of a row or a series in a link; other variables stay as they are.
function replaceVariables(text, variables) {
  const context = variables?.__dataContext?.value;
  if (context?.rowIndex === undefined) {
    return text;
  }
  const row = data.getFieldDisplayValuesProxy({ frame: context.frame, rowIndex: context.rowIndex });
  return text
    .replace(/\$\{__data\.fields\.(\w+)\}/g, (_, name) => encodeURIComponent(String(row[name])))
    .replace(/\$\{__field\.labels\.(\w+)\}/g, (_, name) => encodeURIComponent(String(context.field.labels?.[name])));
}

async function drawn({ panel, answers }) {
  const several = panel.targets.length > 1;
  const frames = panel.targets.flatMap((target) =>
    target.format === 'table'
      ? [tableFrame(target, answers[target.refId], several)]
      : seriesFrames(target, answers[target.refId])
  );
  const transformed = await firstValueFrom(
    data.transformDataFrame(panel.transformations ?? [], frames, { interpolate: (text) => text })
  );
  const shown = data.applyFieldOverrides({
    data: transformed,
    fieldConfig: panel.fieldConfig,
    fieldConfigRegistry: registry(panel.fieldConfig),
    replaceVariables,
    theme,
    timeZone: 'utc',
  });
  const text = (field, value) => data.formattedValueToString(field.display(value));
  const fields = shown.flatMap((frame) =>
    frame.fields.map((field) => ({
      name: data.getFieldDisplayName(field, frame, shown),
      refId: frame.refId,
      labels: field.labels ?? {},
      type: field.type,
      texts: field.values.map((value) => text(field, value)),
      colors: field.values.map((value) => field.display(value).color),
      custom: field.config.custom ?? {},
      color: field.config.color ?? null,
      links: field.values.map((_, row) => field.getLinks({ valueRowIndex: row }).map((link) => link.href)),
      legend: (panel.options.legend?.calcs ?? []).map((calc) =>
        field.type === data.FieldType.number ? text(field, data.reduceField({ field, reducers: [calc] })[calc]) : null
      ),
    }))
  );
  const values = panel.options.reduceOptions
    ? data
        .getFieldDisplayValues({
          data: shown,
          fieldConfig: panel.fieldConfig,
          reduceOptions: panel.options.reduceOptions,
          replaceVariables,
          theme,
        })
        .map(({ display }) => ({ title: display.title, text: data.formattedValueToString(display), color: display.color }))
    : [];
  return { fields, values };
}

async function main() {
  let asked = '';
  for await (const part of process.stdin) {
    asked += part;
  }
  const { formats, panels } = JSON.parse(asked);
  const ids = (registered) => registered.list().map((one) => one.id);
  const answer = {
    known: {
      units: data.getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value)),
      transformations: [...transformers.keys()],
      matchers: ids(data.fieldMatchers),
      calcs: ids(data.fieldReducers),
      colors: ids(data.fieldColorModeRegistry),
      thresholds: Object.values(ThresholdsMode),
      mappings: Object.values(data.MappingType),
    },
    formats: formats.map(([unit, value]) => data.formattedValueToString(data.getValueFormat(unit)(value))),
    panels: await Promise.all(panels.map(drawn)),
  };
  process.stdout.write(JSON.stringify(answer));
}

main();
