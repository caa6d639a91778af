import { useId, useState } from 'react';
import type { ChatRequest, ChatTool } from '../../data/chat-code.ts';
import { newId, Problem } from '../../data/request.ts';
import { Field } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import type { DraftFile } from '../session/next-message.ts';
import type { Exchange } from './column.tsx';

const EFFORTS = ['low', 'medium', 'high'] as const;
export const NO_OPTIONS = { system: '', temperature: '', maxTokens: '', effort: '', tools: '' };
export type Options = typeof NO_OPTIONS;

/** What a model is asked with: what it has of its own, and else what all have. */
export function optionsFor(shared: Options, own: Options | undefined): Options {
  if (own === undefined) return shared;
  const given = Object.entries(own).filter(([, value]) => value.trim() !== '');
  return { ...shared, ...Object.fromEntries(given) };
}

/** Reads the field of the tools. Throws a `Problem` that names what is wrong with it. */
export function toolsOf({ tools: text }: Options): readonly ChatTool[] {
  if (text.trim() === '') return [];
  const refuse = (reason: string) => new Problem(`The tools cannot be sent: ${reason}`, { code: 'invalid_tools' });
  let tools: unknown;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw refuse(`they are not JSON (${(error as Error).message}).`);
  }
  if (!Array.isArray(tools)) throw refuse('write them as a list, in [ and ].');
  const wrong = tools.findIndex((tool) => tool?.type !== 'function' || typeof tool.function?.name !== 'string');
  if (wrong === -1) return tools as ChatTool[];
  throw refuse(
    `number ${wrong + 1} is not of the form {"type": "function", "function": {"name": "…", "parameters": {…}}}.`,
  );
}

/** Why the tools of some model cannot be sent; undefined: they can. */
export function toolsProblem(all: readonly Options[]): unknown {
  try {
    for (const options of all) toolsOf(options);
    return undefined;
  } catch (problem) {
    return problem;
  }
}

interface NextMessage {
  readonly model: string;
  readonly options: Options;
  readonly before: readonly Exchange[];
  readonly prompt: string;
  readonly images: readonly DraftFile[];
}

/** The conversation of a column so far, and the next message. An answer that failed is left out with its question. */
export function requestOf({ model, options, before, prompt, images }: NextMessage): ChatRequest {
  const { system, temperature, maxTokens, effort } = options;
  const tools = toolsProblem([options]) === undefined ? toolsOf(options) : [];
  const pictures = images.map(({ picture = '' }) => ({ type: 'image_url' as const, image_url: { url: picture } }));
  return {
    model,
    messages: [
      ...(system === '' ? [] : [{ role: 'system' as const, content: system }]),
      ...before
        .filter(({ answer }) => answer.text !== '')
        .flatMap(({ request, answer }) => [
          ...request.messages.slice(-1),
          { role: 'assistant' as const, content: answer.text },
        ]),
      {
        role: 'user' as const,
        content: pictures.length === 0 ? prompt : [{ type: 'text' as const, text: prompt }, ...pictures],
      },
    ],
    ...(temperature !== '' && { temperature: Number(temperature) }),
    ...(maxTokens !== '' && { max_tokens: Number(maxTokens) }),
    ...(effort !== '' && { reasoning_effort: effort }),
    ...(tools.length > 0 && { tools }),
  };
}

const MAX_IMAGES = 4;
const MAX_IMAGE_BYTES = 5 * 1024 * 1024;

/** Reads images for a message. Throws a `Problem` where a file is none, or there are too many, or one is too large. */
export async function readImages(before: readonly DraftFile[], files: readonly File[]): Promise<readonly DraftFile[]> {
  const refuse = (reason: string) => new Problem(reason, { code: 'invalid_image' });
  const wrong = files.find(({ type }) => !type.startsWith('image/'));
  if (wrong !== undefined) throw refuse(`“${visible(wrong.name)}” is not an image: models are sent images only.`);
  const large = files.find(({ size }) => size > MAX_IMAGE_BYTES);
  if (large !== undefined) throw refuse(`“${visible(large.name)}” is larger than 5 MiB: make it smaller.`);
  if (before.length + files.length > MAX_IMAGES) throw refuse(`A message takes at most ${MAX_IMAGES} images.`);
  const read = files.map(async (file) => ({
    name: file.name,
    sizeBytes: file.size,
    attachmentId: newId(),
    picture: await dataUrlOf(file),
  }));
  return [...before, ...(await Promise.all(read))];
}

function dataUrlOf(file: File): Promise<string> {
  const reader = new FileReader();
  return new Promise((resolve, reject) => {
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Problem(`“${visible(file.name)}” could not be read.`));
    reader.readAsDataURL(file);
  });
}

interface OptionFieldsProps {
  readonly models: readonly string[];
  readonly shared: Options;
  /** By the place of a model, what it has instead. */
  readonly own: readonly Options[];
  readonly onShared: (options: Options) => void;
  readonly onOwn: (own: readonly Options[]) => void;
}

/** The parameters of all models, or of one of them. */
export function OptionFields({ models, shared, own, onShared, onOwn }: OptionFieldsProps) {
  const id = useId();
  const [chosen, setChosen] = useState(-1);
  const place = models.length > 1 && chosen < models.length ? chosen : -1;
  const options = place === -1 ? shared : (own[place] ?? NO_OPTIONS);
  const set = (name: keyof Options) => (value: string) => {
    const next = { ...options, [name]: value };
    if (place === -1) onShared(next);
    else onOwn(models.map((_, at) => (at === place ? next : (own[at] ?? NO_OPTIONS))));
  };
  return (
    <details className="options">
      <summary>Parameters</summary>
      {models.length === 1 ? null : (
        <div className="field">
          <label htmlFor={`${id}-place`}>Of which model</label>
          <select id={`${id}-place`} value={place} onChange={({ target }) => setChosen(Number(target.value))}>
            <option value={-1}>all models</option>
            {models.map((model, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place
              <option key={at} value={at}>
                {`${at + 1} ${visible(model)}`}
              </option>
            ))}
          </select>
          {place === -1 ? null : <p className="quiet">Empty fields use the value for all models.</p>}
        </div>
      )}
      <div className="line">
        <Field label="System prompt" value={options.system} onChange={set('system')} autoComplete="off" />
        <NumberField
          label="Temperature"
          range={{ min: 0, max: 2, step: 0.1 }}
          value={options.temperature}
          onChange={set('temperature')}
        />
        <NumberField
          label="Maximum length, in tokens"
          range={{ min: 1, step: 1 }}
          value={options.maxTokens}
          onChange={set('maxTokens')}
        />
        <div className="field">
          <label htmlFor={`${id}-effort`}>Reasoning</label>
          <select id={`${id}-effort`} value={options.effort} onChange={({ target }) => set('effort')(target.value)}>
            <option value="">the model’s default</option>
            {EFFORTS.map((effort) => (
              <option key={effort}>{effort}</option>
            ))}
          </select>
        </div>
      </div>
      <div className="field">
        <label htmlFor={`${id}-tools`}>Tools, as JSON</label>
        <textarea
          id={`${id}-tools`}
          rows={3}
          spellCheck={false}
          value={options.tools}
          placeholder='[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]'
          onChange={({ target }) => set('tools')(target.value)}
        />
        <p className="quiet">Tool calls are shown but not run.</p>
      </div>
    </details>
  );
}

interface NumberFieldProps {
  readonly label: string;
  readonly range: { readonly min: number; readonly max?: number; readonly step: number };
  readonly value: string;
  readonly onChange: (value: string) => void;
}

function NumberField({ label, range, value, onChange }: NumberFieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} type="number" {...range} value={value} onChange={({ target }) => onChange(target.value)} />
    </div>
  );
}
