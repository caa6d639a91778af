import { openAiRows } from './openai-rows.ts';

/** Servers on this machine or network: they need no key. */
export const localApis = openAiRows(
  [
    ['atomic-chat', 'Atomic Chat', 'http://127.0.0.1:1337/v1', 'ATOMIC_CHAT_API_KEY'],
    [
      'docker-model-runner',
      'Docker Model Runner',
      'http://localhost:12434/engines/llama.cpp/v1',
      'DOCKER_MODEL_RUNNER_API_KEY',
    ],
    ['lemonade', 'Lemonade server', 'http://localhost:8000/api/v1', 'LEMONADE_API_KEY'],
    ['litellm-proxy', 'Another LiteLLM proxy', '{LITELLM_PROXY_API_BASE}', 'LITELLM_PROXY_API_KEY'],
    ['llama-cpp', 'llama.cpp server', 'http://127.0.0.1:8080/v1', 'LLAMA_CPP_API_KEY'],
    ['llamafile', 'llamafile', 'http://127.0.0.1:8080/v1', 'LLAMAFILE_API_KEY'],
    ['lmstudio', 'LMStudio', 'http://127.0.0.1:1234/v1', 'LMSTUDIO_API_KEY'],
    ['ollama', 'Ollama (local)', 'http://localhost:11434/v1', 'OLLAMA_API_KEY'],
    ['privatemode-ai', 'Privatemode AI', 'http://localhost:8080/v1', 'PRIVATEMODE_API_KEY'],
    ['vllm', 'vLLM server', 'http://localhost:8000/v1', 'HOSTED_VLLM_API_KEY'],
    ['xinference', 'Xinference', 'http://127.0.0.1:9997/v1', 'XINFERENCE_API_KEY'],
  ],
  { local: true },
);
