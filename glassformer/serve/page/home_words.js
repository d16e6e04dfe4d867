// Every word of the page at `/`, in English and in Chinese.

export const HOME_WORDS = {
  en: {
    title: "Translate", model: "Model", source: "Text", answer: "Translation", type: "Type or paste a text …", go: "Translate", language: "中文",
    theme: "Dark or light", alternatives: "Alternatives", confidence: "The paler a word, the less sure the model was of it. Point at a word, or reach it with the arrow keys, to light what it looked at.",
    look: "Look inside", key: "API key", keyNeeded: "This server needs its key.", writing: "Writing …", auto: "Found out", from: "From", to: "To",
    prompt: "Prompt", goesOn: "Goes on", write: "Write on", none: "This server has no models.", sure: "{} sure", routes: "Routes", longLook: "A report is made of at most 400 characters.",
    unknown: "Not in the model's vocabulary: {}",
  },
  zh: {
    title: "翻译", model: "模型", source: "原文", answer: "译文", type: "输入或粘贴文字……", go: "翻译", language: "English",
    theme: "深色或浅色", alternatives: "其他译法", confidence: "词的颜色越浅，模型越没有把握。指向一个词，或用方向键选中它，即可点亮它所看的原文。",
    look: "看看内部", key: "API 密钥", keyNeeded: "此服务器需要密钥。", writing: "正在书写……", auto: "自动识别", from: "从", to: "到",
    prompt: "提示", goesOn: "续写", write: "续写", none: "此服务器没有模型。", sure: "把握 {}", routes: "接口", longLook: "报告最多用 400 个字符。",
    unknown: "不在模型的词表里：{}",
  },
};
